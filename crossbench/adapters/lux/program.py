"""Write programs in Lux.jl, and their initial weights. Needs no Julia."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from ... import models
from ...in_julia.chain import Chain, chain_parts
from ...in_julia.data import example_arrays
from ...in_julia.program import (
    EpochSource,
    TrainingDialect,
    part_program as julia_part_program,
    training_program as julia_program,
)
from ...in_julia.source import (
    Imports,
    has_no_decay,
    optimizer_source,
    parameter_arrays,
    trained_parameters,
    written,
)
from ...models.model import Model, NamedLayer, Weights
from ...source.part_programs import PartTraining
from ...source.statements import Call
from ...source.training_programs import Block, Training
from .source import MODULES, WRAPPED, layer_source, loss_source

__all__ = ["example_arrays", "initial_arrays", "part_program", "training_program"]

RECURRENT = (models.LSTM, models.GRU)


def training_program(training: Training) -> str:
    """Return the program that trains a model.

    Raises NotImplementedError for a part that it cannot have.
    """
    return julia_program(LuxTraining(training))


def part_program(training: PartTraining) -> str:
    """Return the program that times a piece of work.

    Raises NotImplementedError for a part that it cannot have.
    """
    return julia_part_program(LuxTraining(training), training)


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return the trained weights in the order of Optimisers.trainables, with the program's axes.

    Running statistics start at the values that Lux gives them.
    """
    found: dict[str, np.ndarray] = {}
    for named in training.model.all_layers():
        names = list(trained_parameters(named))
        if isinstance(named.layer, models.LayerNorm):
            names.reverse()  # Lux has the bias first
        for name, array in parameter_arrays(named, names, weights).items():
            found[name] = array
            if isinstance(named.layer, RECURRENT) and array.ndim == 1:
                found[f"{name} of the last output"] = np.zeros_like(array)
    return found


class LuxTraining(TrainingDialect):
    """Writes what is Lux's own in the program of a training."""

    title = "Lux.jl"
    package = "Lux"
    data_loader = "DataLoader"
    onecold = "onecold"

    def imports(self) -> Imports:
        on_gpu = ("LuxCUDA",) if self.is_on_gpu else ()
        is_given = isinstance(self.training.model.loss, models.GivenGradient)  # it has no state
        rules = () if is_given else ("Optimisers",)
        return Imports(("Lux", *rules, "Zygote"), MODULES, on_gpu)

    def targets(self, model: Model, first: int = 0) -> str:
        return loss_source(model, first).targets

    def loss(self) -> str:
        return loss_source(self.training.model).definition

    def chain(self) -> LuxChain:
        return LuxChain(self.training)

    def clip(self, norm: str) -> str:
        arrays = FIRST_BIASES if self.is_recurrent else "    arrays = trainables(gradients)"
        return CLIP.format(norm=norm, arrays=arrays)

    @property
    def is_recurrent(self) -> bool:
        layers = self.training.model.all_layers()
        return any(isinstance(named.layer, RECURRENT) for named in layers)

    def epoch(self) -> EpochSource:
        clips = self.training.model.optimizer.clip_norm is not None
        return EpochSource(
            summary="Train on every batch once, and return the loss of each step and the state.",
            function="train_epoch",
            given=("state",),
            adjust="state = Optimisers.adjust!(state, {rate})",
            step=CLIPPED_STEP if clips else STEP,
            results="losses, state",
        )

    def load_weights(self) -> list[str]:
        lines = [*SETUP, *LOAD_WEIGHTS]
        lines += ["ps, st = (ps, st) |> device"] if self.is_on_gpu else []
        return lines + self._seeds()

    def initial_state(self) -> list[str]:
        optimizer = self.training.model.optimizer
        lines = []
        given = ("model", "ps", "st", optimizer_source(optimizer))
        lines.append(written("state = ", Call("Training.TrainState", given)))
        if has_no_decay(optimizer):
            lines += NO_DECAY
        if self.is_recurrent:
            lines += FREEZE
        return lines

    def _seeds(self) -> list[str]:
        """Return the statements that seed the dropout masks, with the row's seeds."""
        if not self.training.has_dropout:
            return []
        paths = {
            named.name: path
            for named, path in layer_paths(list(self.training.model.named_layers()))
            if isinstance(named.layer, models.Dropout)
        }
        seeds = enumerate((paths[name] for name in sorted(paths)), start=1)
        first, *others = (f"Random.seed!(st.{path}.rng, {seed})" for seed, path in seeds)
        own = list(RNGS_ON_GPU) if self.is_on_gpu else []
        return [*own, f"{first}  # of the dropout masks", *others]

    def made(self) -> list[str]:
        return list(SETUP)

    def gradients(self) -> tuple[str, str]:
        if loss_source(self.training.model).function:
            return OF_LOSS.strip(), "compute_gradients(state, x, y)"
        return OF_OUTPUTS.strip(), "compute_gradients(model, ps, st, x, y)"

    def outputs(self) -> tuple[list[str], str]:
        before = ["ps, st = state.parameters, Lux.testmode(state.states)"]
        if self.is_on_gpu:
            return before, "first(model(x |> device, ps, st)) |> cpu_device()"
        return before, "first(model(x, ps, st))"


OF_LOSS = """
compute_gradients(state, x, y) =
    Training.compute_gradients(AutoZygote(), lossfn, (x, y), state)
"""
OF_OUTPUTS = '''
"""Return the gradients for y, the gradient of the outputs."""
function compute_gradients(model, ps, st, x, y)
    (outputs, states), back = Zygote.pullback(ps -> model(x, ps, st), ps)
    return outputs, states, Zygote.unthunk_tangent(back((y, nothing)))
end
'''
CLIP = '''
"""Scale the gradients down where the norm of all arrays together is over {norm}."""
function clip(gradients)
{arrays}
    norm = sqrt(sum(array -> sum(abs2, array), arrays))
    norm <= {norm} && return gradients
    return Lux.Functors.fmap(x -> x isa AbstractArray ? T({norm} / norm) .* x : x, gradients)
end
'''
FIRST_BIASES = """
    pairs = trainables(gradients; path = true)
    arrays = [array for (path, array) in pairs if last(path) != :bias_hh]
""".strip("\n")
STEP = ("_, loss, _, state = Training.single_train_step!(AutoZygote(), lossfn, (x, y), state)",)
CLIPPED_STEP = (
    "gradients, loss, _, state =",
    "    Training.compute_gradients(AutoZygote(), lossfn, (x, y), state)",
    "state = Training.apply_gradients!(state, clip(gradients))",
)
SETUP = ("ps, st = Lux.setup(Xoshiro(0), model)",)
LOAD_WEIGHTS = (
    "open(INITIAL) do file",
    "    foreach(array -> read!(file, array), trainables(ps))",
    "end",
    "ps, st = T == Float64 ? f64((ps, st)) : (ps, st)",
)
NO_DECAY = (
    "for (path, parameter) in trainables(ps; path = true)",
    "    ndims(parameter) in (2, 4) && continue  # a LayerNorm's are (features, 1, 1)",
    "    Optimisers.adjust!(getkeypath(state.optimizer_state, path); lambda = 0.0)",
    "end",
)
FREEZE = (
    "for (path, _) in trainables(ps; path = true)  # a cell's second bias stays zero",
    "    last(path) == :bias_hh && Optimisers.freeze!(getkeypath(state.optimizer_state, path))",
    "end",
)
RNGS_ON_GPU = (
    "is_rng(x) = x isa Random.AbstractRNG  # those that draw on the GPU, each a copy",
    "st = Lux.Functors.fmap(st; exclude = x -> is_rng(x) || Lux.Functors.isleaf(x)) do x",
    "    is_rng(x) ? LuxCore.replicate(default_device_rng(device)) : x",
    "end",
)


class LuxChain(Chain):
    """Writes a Chain of Lux's layers."""

    no_layers: ClassVar[str] = "NoOpLayer()"

    def statements(self, layers: Sequence[NamedLayer]) -> list[str]:
        """Return the statements that make the `model`."""
        if not isinstance(layers[-1].layer, models.Unembedding):
            return [written("model = ", Call("Chain", tuple(self.items(layers))))]
        first, *between, _ = layers
        self.define([TIED_MODEL])
        body = Call("Chain", tuple(self.items(between))) if between else self.no_layers
        return [written("model = ", Call("TiedModel", (*self.items([first]), body)))]

    def repeated(self, blocks: str) -> str:
        return f"Chain({blocks}...)"  # a long Chain compiles for many minutes

    def layer(self, named: NamedLayer, applied: Sequence[str]) -> list[str | Call]:
        """Return the item of a layer: the layer, or the function that a Chain makes one of."""
        source = layer_source(named, *applied)
        self.define(source.definitions)
        made = source.call
        return [made.arguments[0] if made.function == WRAPPED else made]


TIED_MODEL = '''
"""Begin with an embedding, and end with a multiplication by its weight."""
struct TiedModel{E,B} <: AbstractLuxContainerLayer{(:embedding, :body)}
    embedding::E
    body::B
end
function (model::TiedModel)(x, ps, st)
    embedded, st_embedding = model.embedding(x, ps.embedding, st.embedding)
    y, st_body = model.body(embedded, ps.body, st.body)
    outputs = ps.embedding.weight' * reshape(y, size(y, 1), :)
    states = (embedding = st_embedding, body = st_body)
    return reshape(outputs, :, size(y)[2:end]...), states
end
'''


def layer_paths(layers: Sequence[NamedLayer]) -> Iterator[tuple[NamedLayer, str]]:
    """Yield each layer of a model, inner ones too, with the fields that lead to its states."""
    if isinstance(layers[-1].layer, models.Unembedding):
        yield layers[0], "embedding"
        yield from _chain_paths(layers[1:-1], "body.")
    else:
        yield from _chain_paths(layers, "")


def _chain_paths(layers: Sequence[NamedLayer], start: str) -> Iterator[tuple[NamedLayer, str]]:
    for place, part in enumerate(chain_parts(layers), start=1):
        made, path = part.made, f"{start}layer_{place}"
        if not isinstance(made, Block):
            yield from _inner_paths(made, path)
            continue
        for number, group in enumerate((made.layers, *made.repeated), start=1):
            block = f"{path}.layer_{number}"
            if len(group) == 1:
                yield from _inner_paths(group[0], block)
                continue
            for inner, named in enumerate(group, start=1):
                yield from _inner_paths(named, f"{block}.layer_{inner}")


def _inner_paths(named: NamedLayer, path: str) -> Iterator[tuple[NamedLayer, str]]:
    yield named, path
    if named.shortcut:
        yield from _chain_paths(named.body, f"{path}.layer_1.")
        yield from _chain_paths(named.shortcut, f"{path}.layer_2.")
    else:
        yield from _chain_paths(named.body, f"{path}.")
