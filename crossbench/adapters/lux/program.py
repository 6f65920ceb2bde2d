"""Write what is Lux.jl's own in programs. Needs no Julia."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ... import models
from ...in_julia.chain import Chain
from ...in_julia.dialect import Dialect, EpochSource
from ...in_julia.source import (
    Imports,
    LossSource,
    Place,
    has_no_decay,
    optimizer_source,
    place,
    tables,
    written,
)
from ...models.model import NamedLayer
from ...source.statements import Call, unsupported
from .source import MODULES, layer_source, loss_source


class LuxTraining(Dialect):
    """Writes what is Lux's own in the program of a training."""

    title = "Lux.jl"
    package = "Lux"
    data_loader = "DataLoader"
    onecold = "onecold"
    state_of = ("model", "ps", "st")
    given_gradient = "given_gradient_objective"
    setup = ("ps, st = Lux.setup(Xoshiro(0), model)",)

    def has_masks(self, layer: models.Layer) -> bool:
        return super().has_masks(layer) and layer != models.Dropout(0)  # of which Lux makes none

    def imports(self) -> Imports:
        on_gpu = ("LuxCUDA",) if self.is_on_gpu else ()
        rules = ("Optimisers",) if self.loss.function else ()  # gradients alone need none
        return Imports(("Lux", *rules, "Zygote"), MODULES, on_gpu)

    def loss_source(self, first: int = 0) -> LossSource:
        return loss_source(self.model, first)

    def places(self) -> list[Place]:
        trained: list[Place] = []
        statistics: list[Place] = []
        for named in self.model.all_layers():
            names = list(named.layer.parameters(named.input_shape))
            if isinstance(named.layer, models.LayerNorm) and len(named.input_shape) == 2:
                names.reverse()  # Lux has the bias first
            for found in (place(named, name) for name in names):
                (trained if found.is_trained else statistics).append(found)
                if has_frozen_bias(named.layer) and len(found.shape) == 1:
                    trained.append(Place("", found.shape))  # a cell's second bias
            statistics += tables(named)
        return trained + statistics

    def chain(self) -> LuxChain:
        return LuxChain()

    def clip(self, norm: str) -> str:
        arrays = FIRST_BIASES if self.freezes else "    arrays = trainables(gradients)"
        return CLIP.format(norm=norm, arrays=arrays)

    @property
    def freezes(self) -> bool:
        """Return whether the second biases of cells stay zero: those of all of them do."""
        layers = [named.layer for named in self.model.all_layers()]
        recurrent = [layer for layer in layers if isinstance(layer, models.Recurrent)]
        frozen = [layer for layer in recurrent if has_frozen_bias(layer)]
        if frozen and len(frozen) < len(recurrent):
            raise unsupported("layer beside one with both biases", frozen[0], self.title)
        return bool(frozen)

    def epoch(self) -> EpochSource:
        clips = self.model.optimizer.clip_norm is not None
        return EpochSource(
            summary="Train on every batch once, and return the loss of each step and the state.",
            function="train_epoch",
            given=("state",),
            adjust="state = Optimisers.adjust!(state, {rate})",
            step=CLIPPED_STEP if clips else STEP,
            results="losses, state",
        )

    def load_weights(self) -> list[str]:
        lines = [*LOAD_WEIGHTS, *["ps, st = (ps, st) |> device"] * self.is_on_gpu]
        return lines + self._seeds()

    def state(self) -> list[str]:
        optimizer = self.model.optimizer
        made = Call("Training.TrainState", (*self.state_of, optimizer_source(optimizer)))
        lines = [written("state = ", made)]
        if has_no_decay(optimizer):
            lines += NO_DECAY
        if self.freezes:
            lines += FREEZE
        return lines

    def _seeds(self) -> list[str]:
        """Return the statements that seed the dropout masks, with the row's seeds."""
        if not self.dropouts:
            return []
        chain = self.chain()
        chain.statements(list(self.model.named_layers()))
        seeds = enumerate((chain.paths[name] for name in self.dropouts), start=1)
        first, *others = (f"Random.seed!(st.{path}.rng, {seed})" for seed, path in seeds)
        own = list(RNGS_ON_GPU) if self.is_on_gpu else []
        return [*own, f"{first}  # of the dropout masks", *others]

    def gradients(self) -> tuple[str, str]:
        if self.loss.function:
            return OF_LOSS.strip(), "compute_gradients(state, x, y)"
        return OF_OUTPUTS.strip(), "compute_gradients(model, ps, st, x, y)"

    def outputs(self) -> tuple[list[str], str]:
        before = ["ps, st = state.parameters, Lux.testmode(state.states)"]
        if self.is_on_gpu:
            return before, "first(model(x |> device, ps, st)) |> cpu_device()"
        return before, "first(model(x, ps, st))"


def has_frozen_bias(layer: models.Layer) -> bool:
    """Return whether a layer has a second bias in Lux, but not in the description."""
    return isinstance(layer, models.Recurrent) and not layer.both_biases


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
    scaled(x) = x isa AbstractArray ? eltype(x)({norm} / norm) .* x : x
    return Lux.Functors.fmap(scaled, gradients)
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
LOAD_WEIGHTS = (
    "open(INITIAL) do file",
    "    foreach(array -> read!(file, array), trainables(ps))",
    "end",
    "ps, st = T == Float64 ? f64((ps, st)) : (ps, st)",
)
NO_DECAY = (
    "for (path, parameter) in trainables(ps; path = true)",
    "    is_of_norm = last(path) in (:scale, :bias)  # a LayerNorm's are (features, 1, 1)",
    "    ndims(parameter) > 1 && !is_of_norm && continue",
    "    Optimisers.adjust!(getkeypath(state.optimizer_state, path); lambda = 0.0)",
    "end",
)
FREEZE = (
    "for (path, bias) in trainables(ps; path = true)",
    "    last(path) == :bias_hh || continue  # a cell's second bias stays zero",
    "    fill!(bias, 0)",
    "    Optimisers.freeze!(getkeypath(state.optimizer_state, path))",
    "end",
)
RNGS_ON_GPU = (
    "is_rng(x) = x isa Random.AbstractRNG  # those that draw on the GPU, each a copy",
    "st = Lux.Functors.fmap(st; exclude = x -> is_rng(x) || Lux.Functors.isleaf(x)) do x",
    "    is_rng(x) ? LuxCore.replicate(default_device_rng(device)) : x",
    "end",
)


MAX_FLAT_LAYERS, PART = 12, 4
"""How many layers a Chain holds at most, and how many each of the Chains in a longer one: Julia
compiles a Chain as a whole, in a time that grows much faster than its length, and equal parts once.
The first step of resnet63 took 79 s in parts of 4, 130 s in parts of 8, more than 270 s flat."""


class LuxChain(Chain):
    """Writes a Chain of Lux's layers."""

    no_layers: ClassVar[str] = "NoOpLayer()"

    def statements(self, layers: Sequence[NamedLayer]) -> list[str]:
        """Return the statements that make the `model`."""
        if not isinstance(layers[-1].layer, models.Unembedding):
            return [written("model = ", self.chain(layers))]
        first, *between, _ = layers
        body = self.chain(between, "body.") if between else self.no_layers
        made = Call("TiedModel", (*self.items_of(first, "embedding"), body))
        return [written("model = ", made)]

    def chain(self, layers: Sequence[NamedLayer], path: str = "") -> Call:
        items = self.items(layers, path)
        if len(items) > MAX_FLAT_LAYERS:
            parts = (tuple(items[start:][:PART]) for start in range(0, len(items), PART))
            items = [Call("Chain", part) for part in parts]
        return Call("Chain", tuple(items))

    def field_of(self, index: int, count: int) -> str:
        if count > MAX_FLAT_LAYERS:
            return f"layer_{index // PART + 1}.layer_{index % PART + 1}"
        return super().field_of(index, count)

    def repeated(self, blocks: str) -> str:
        return f"Chain({blocks}...)"

    def layer(self, named: NamedLayer, *activation: str) -> list[str | Call]:
        return [layer_source(named, *activation)]
