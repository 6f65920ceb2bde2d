"""Write programs in Flux.jl, and their initial weights. Needs no Julia."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ... import models
from ...in_julia.chain import Chain, function_source, fused
from ...in_julia.data import example_arrays
from ...in_julia.program import (
    EpochSource,
    TrainingDialect,
    part_program as julia_part_program,
    training_program as julia_training_program,
)
from ...in_julia.source import (
    LINE,
    Imports,
    has_no_decay,
    optimizer_source,
    parameter_arrays,
    trained_parameters,
    written,
)
from ...inputs.names import IDIOMATIC, MALLOC
from ...models.model import Model, NamedLayer, Weights
from ...source.part_programs import PartTraining
from ...source.statements import Call, indented
from ...source.training_programs import Training, check_variant
from .source import TIED, layer_source, loss_source

__all__ = ["example_arrays", "initial_arrays", "part_program", "training_program"]

VARIANTS = (IDIOMATIC, MALLOC)
MAX_TUPLE_LAYERS = 24
"""Layers that a Chain holds in a tuple at most, as the row's: Julia compiles a tuple as a whole."""


def training_program(training: Training) -> str:
    """Return the program that trains a model.

    Raises NotImplementedError for a variant or a part that it cannot have.
    """
    check_variant(training, VARIANTS, "flux", "julia/CrossBenchFlux/src/{variant}.jl")
    return julia_training_program(FluxTraining(training))


def part_program(training: PartTraining) -> str:
    """Return the program that times a piece of work.

    Raises NotImplementedError for a part that it cannot have.
    """
    return julia_part_program(FluxTraining(training), training)


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return the trained weights in the order of Flux.trainables, with the program's axes reversed.

    Running statistics start at the values that Flux gives them.
    """
    found: dict[str, np.ndarray] = {}
    for named in training.model.all_layers():
        names = list(trained_parameters(named))
        if isinstance(named.layer, models.BatchNorm):
            names.reverse()  # Flux has the bias first
        found |= parameter_arrays(named, names, weights)
    return found


class FluxTraining(TrainingDialect):
    """Writes what is Flux's own in the program of a training."""

    title = "Flux.jl"
    package = "Flux"
    data_loader = "Flux.DataLoader"
    onecold = "Flux.onecold"

    def imports(self) -> Imports:
        return Imports(("Flux",), on_gpu=("CUDA", "cuDNN") if self.is_on_gpu else ())

    def targets(self, model: Model, first: int = 0) -> str:
        return loss_source(model, first).targets

    def notes(self, text: str) -> list[str]:
        return [NORM_NOTE] if "eps = sqrt" in text else []

    def chain(self) -> FluxChain:
        return FluxChain(self.training)

    def clip(self, norm: str) -> str:
        layers = self.training.model.layers
        is_tied = any(isinstance(layer, models.Unembedding) for layer in layers)
        return CLIP.format(norm=norm, tied=TIED_SQUARES if is_tied else "")

    def epoch(self) -> EpochSource:
        model = self.training.model
        gradient = "gradients[1]" if model.optimizer.clip_norm is None else "clip(gradients[1])"
        return EpochSource(
            summary="Train on every batch once, and return the loss of each step.",
            function="train_epoch!",
            given=("model", "state"),
            adjust="Flux.adjust!(state, {rate})",
            step=(
                "loss, gradients = Flux.withgradient(model) do m",
                f"    {loss_source(model).function}(m(x), y)",
                "end",
                f"Flux.update!(state, model, {gradient})",
            ),
            results="losses",
        )

    def load_weights(self) -> list[str]:
        return [*LOAD_WEIGHTS, *(["model = model |> device"] if self.is_on_gpu else [])]

    def initial_state(self) -> list[str]:
        optimizer = self.training.model.optimizer
        lines = [f"state = Flux.setup({optimizer_source(optimizer)}, model)"]
        if has_no_decay(optimizer):
            lines += NO_DECAY
        if self.is_on_gpu and self.training.has_dropout:
            lines.append("CUDA.seed!(1)  # of the dropout masks")
        return lines

    def gradients(self) -> tuple[str, str]:
        function = loss_source(self.training.model).function
        gradients = OF_OUTPUTS.strip()
        if function:
            gradients = OF_LOSS.format(function=function).strip()
        return gradients, "compute_gradients(model, x, y)"

    def outputs(self) -> tuple[list[str], str]:
        return [], "model(x |> device) |> cpu" if self.is_on_gpu else "model(x)"


NORM_NOTE = "Flux's LayerNorm adds the square of its eps to the variance."
TIED_SQUARES = """
    # the weight of the embedding has two gradients: |a + b|^2 = |a|^2 + |b|^2 + 2 a b
    squares += 2 * dot(gradient.layers[1].weight, gradient.layers[end].weight)
""".lstrip("\n")
CLIP = '''
"""Scale the gradient down where the norm of all its arrays together is over {norm}."""
function clip(gradient)
    squares = sum(array -> sum(abs2, array), Flux.trainables(gradient))
{tied}    norm = sqrt(squares)
    norm <= {norm} && return gradient
    return fmap(x -> x isa AbstractArray ? T({norm} / norm) .* x : x, gradient)
end
'''
OF_LOSS = """
compute_gradients(model, x, y) =
    Flux.gradient(m -> {function}(m(x), y), model)
"""
OF_OUTPUTS = '''
"""Return the gradients for y, the gradient of the outputs."""
function compute_gradients(model, x, y)
    outputs, back = Flux.pullback(m -> m(x), model)
    return outputs, back(y)
end
'''
LOAD_WEIGHTS = (
    "open(INITIAL) do file",
    "    foreach(array -> read!(file, array), Flux.trainables(model))",
    "end",
    "T == Float64 && (model = f64(model))",
)
NO_DECAY = (
    "for (path, parameter) in Flux.trainables(model; path = true)",
    "    ndims(parameter) > 1 && continue",
    "    Flux.adjust!(Flux.Functors.getkeypath(state, path); lambda = 0.0)",
    "end",
)


class FluxChain(Chain):
    """Writes a Chain of Flux's layers."""

    no_layers: ClassVar[str] = "identity"
    """Stands for a branch without layers: the gradient of an empty Chain would be nothing."""

    def statements(self, layers: Sequence[NamedLayer]) -> list[str]:
        """Return the statements that make the `model`."""
        items = self.items(layers)
        lines = []
        if isinstance(layers[-1].layer, models.Unembedding):
            lines.append(written(f"{TIED} = ", items[0]))
            items[0] = TIED
        if sum(1 for _ in fused(layers)) <= MAX_TUPLE_LAYERS:
            return [*lines, written("model = ", Call("Chain", tuple(items)))]
        broken = indented(written("", item, ",", LINE - 4) for item in items)
        return [*lines, "\n".join(["layers = [", *broken, "]"]), "model = Chain(layers)"]

    def layer(self, named: NamedLayer, applied: Sequence[str]) -> list[str | Call]:
        """Return the items of a layer: what holds its parameters, and a function of the output."""
        source = layer_source(named, *applied)
        self.define(source.definitions)
        items: list[str | Call] = []
        output = source.output
        if source.build:
            items.append(self._seeded(named, source.build))
            output = output.replace("{layer}({x})", "{x}")
        if output != "{x}":
            items.append(function_source(output))
        return items

    def _seeded(self, named: NamedLayer, build: Call) -> Call:
        """Return a dropout with a generator of its own, whose seed is the row's."""
        if not isinstance(named.layer, models.Dropout) or self.training.device == "gpu":
            return build
        layers = self.training.model.all_layers()
        names = sorted(other.name for other in layers if isinstance(other.layer, models.Dropout))
        seed = names.index(named.name) + 1
        return Call(build.function, (f"{build.arguments[0]}; rng = Xoshiro({seed})",))
