"""Write what is Flux.jl's own in programs. Needs no Julia."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ... import models
from ...in_julia.chain import Chain, chain_parts
from ...in_julia.dialect import Dialect, EpochSource
from ...in_julia.source import (
    LINE,
    Imports,
    LossSource,
    Place,
    call,
    has_no_decay,
    optimizer_source,
    place,
    tables,
    written,
)
from ...models.model import NamedLayer
from ...source.statements import Call, indented
from .source import TIED, layer_source, loss_source

MAX_TUPLE_LAYERS = 24
"""Layers that a Chain holds in a tuple at most, as the row's: Julia compiles a tuple as a whole."""


class FluxTraining(Dialect):
    """Writes what is Flux's own in the program of a training."""

    title = "Flux.jl"
    package = "Flux"
    data_loader = "Flux.DataLoader"
    onecold = "Flux.onecold"
    state_of = ("model",)
    given_gradient = "given_gradient"

    def imports(self) -> Imports:
        on_gpu = ("CUDA", "cuDNN") if self.is_on_gpu else ()
        return Imports(("Flux",), {"Flux": ("Optimisers",)}, on_gpu)

    def loss_source(self, first: int = 0) -> LossSource:
        return loss_source(self.model, first)

    def places(self) -> list[Place]:
        found = []
        for named in self.model.all_layers():
            names = list(named.layer.parameters(named.input_shape))
            if isinstance(named.layer, models.BatchNorm | models.GroupNorm):
                names.sort(key="bias".__ne__)  # Flux has the bias first
            found += [place(named, name) for name in names] + tables(named)
        return found

    def chain(self) -> FluxChain:
        return FluxChain([] if self.is_on_gpu else self.dropouts)

    def clip(self, norm: str) -> str:
        is_tied = any(isinstance(layer, models.Unembedding) for layer in self.model.layers)
        return CLIP.format(norm=norm, tied=TIED_SQUARES if is_tied else "")

    def epoch(self) -> EpochSource:
        clips = self.model.optimizer.clip_norm is not None
        gradient = "clip(gradients[1])" if clips else "gradients[1]"
        return EpochSource(
            summary="Train on every batch once, and return the loss of each step.",
            function="train_epoch!",
            given=("model", "state"),
            adjust="Flux.adjust!(state, {rate})",
            step=(
                "loss, gradients = Flux.withgradient(model) do m",
                f"    {self.loss.function}(m(x), y)",
                "end",
                f"Flux.update!(state, model, {gradient})",
            ),
            results="losses",
        )

    def load_weights(self) -> list[str]:
        return [*LOAD_WEIGHTS, *(["model = model |> device"] if self.is_on_gpu else [])]

    def state(self) -> list[str]:
        optimizer = self.model.optimizer
        made = Call("Flux.setup", (optimizer_source(optimizer), "model"))
        return [written("state = ", made), *(NO_DECAY if has_no_decay(optimizer) else [])]

    def seeds(self) -> list[str]:
        if self.is_on_gpu and self.dropouts:
            return ["CUDA.seed!(1)  # of the dropout masks"]
        return []

    def gradients(self) -> tuple[str, str]:
        function = self.loss.function
        gradients = OF_LOSS.format(function=function) if function else OF_OUTPUTS
        return gradients.strip(), "compute_gradients(model, x, y)"

    def outputs(self) -> tuple[list[str], str]:
        return [], "model(x |> device) |> cpu" if self.is_on_gpu else "model(x)"


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
    scaled(x) = x isa AbstractArray ? eltype(x)({norm} / norm) .* x : x
    return fmap(scaled, gradient)
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


@dataclass
class FluxChain(Chain):
    """Writes a Chain of Flux's layers.

    dropouts: those with a generator of their own, in the order of its seed, as the row seeds it.
    """

    dropouts: Sequence[str]

    no_layers: ClassVar[str] = "identity"
    """Stands for a branch without layers: the gradient of an empty Chain would be nothing."""

    def statements(self, layers: Sequence[NamedLayer]) -> list[str]:
        """Return the statements that make the `model`."""
        items = self.items(layers)
        lines = []
        if isinstance(layers[-1].layer, models.Unembedding):
            lines.append(written(f"{TIED} = ", items[0]))
            items[0] = TIED
        _, activations = chain_parts(layers)
        if len(layers) - len(activations) <= MAX_TUPLE_LAYERS:
            return [*lines, written("model = ", Call("Chain", tuple(items)))]
        broken = indented(written("", item, ",", LINE - 4) for item in items)
        return [*lines, "\n".join(["layers = [", *broken, "]"]), "model = Chain(layers)"]

    def layer(self, named: NamedLayer, *activation: str) -> list[str | Call]:
        """Return the items of a layer; a dropout has a generator of its own, unless on a GPU."""
        if isinstance(named.layer, models.Dropout) and named.name in self.dropouts:
            seed = self.dropouts.index(named.name) + 1
            return [call("Dropout", named.layer.rate, rng=f"Xoshiro({seed})")]
        return layer_source(named, *activation)
