"""Write layers and losses in Flux.jl, as its users do. Needs no Julia."""

from __future__ import annotations

from ... import models
from ...in_julia.source import (
    LossSource,
    call,
    class_range,
    code,
    number,
    shared_layer,
)
from ...models.model import Model, NamedLayer
from ...source.statements import Call, unless, unsupported

TIED = "embedding"
"""The variable of the layer whose weight the last one shares."""


def layer_source(named: NamedLayer, *activation: str) -> list[str | Call]:
    """Return a layer as items of a Chain: layers, and functions of what is before them.

    activation: the function that the layer applies itself.
    """
    if alike := shared_layer(named, activation, bias="bias"):
        return [alike]
    shape = named.input_shape
    features = shape[-1]
    match named.layer:
        case models.Flatten():
            return ["Flux.flatten"]
        case models.BatchNorm(epsilon, momentum):
            # Flux's momentum is the weight of the new value, the description's of the old one; both
            # numbers are of one type
            given = {"eps": code(epsilon), "momentum": code(1 - momentum)}
            options = given if given != {"eps": "1e-5", "momentum": "0.1"} else {}
            return [call("BatchNorm", shape[0], *activation, **options)]
        case models.LayerNorm(epsilon, bias):
            name = "LayerNorm" if bias else "layer_norm"
            return [call(name, features, eps=f"eps_for({code(epsilon)})")]
        case models.RMSNorm(epsilon):
            return [call("RMSNorm", f"ones32({features})", number(epsilon))]
        case models.GlobalAveragePool():
            return [call("GlobalMeanPool"), "Flux.flatten"]
        case models.Embedding(vocabulary, width):
            return [call("Flux.Embedding", f"{vocabulary} => {width}")]
        case models.OneHot(vocabulary):
            return [f"OneHot{{T}}(1:{vocabulary})"]
        case models.Unembedding():
            return [call("Unembedding", f"{TIED}.weight")]
        case models.PositionEmbedding():
            return [call("PositionEmbedding", f"zeros32({features}, {shape[0]})")]
        case models.ClassToken():
            return [call("ClassToken", f"zeros32({features})")]
        case models.MultiHeadAttention(heads, causal, bias):
            own = unless(False, bias)
            build = call("MultiHeadAttention", features, nheads=heads, bias=own)
            if not causal:
                return [build, "first"]
            return [Call("CausalAttention", (build,))]
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            cell = call(type(named.layer).__name__, f"{features} => {width}")
            if not bidirectional:
                return [cell, "last_output"]
            forward = Call("Chain", (cell, "last_output"))
            backward = Call("Chain", ("reverse_sequence", cell, "last_output"))
            return [Call("Parallel", ("vcat", forward, backward))]
    raise unsupported("layer", named.layer, "Flux.jl")


def loss_source(model: Model, first: int = 0) -> LossSource:
    """Return a model's loss. first: the first class."""
    match model.loss:
        case models.SoftmaxCrossEntropy(smoothing):
            targets = f"Flux.onehotbatch(labels, {class_range(model, first)})"
            if smoothing:
                targets = f"Flux.label_smoothing(T.({targets}), {number(smoothing)})"
            return LossSource("Flux.logitcrossentropy", targets)
        case models.BinaryCrossEntropy():
            return LossSource("Flux.logitbinarycrossentropy", "reshape(T.(labels), 1, :)")
        case models.MeanSquaredError():
            return LossSource("Flux.mse", "T.(labels)")
        case models.GivenGradient():
            return LossSource("", "labels")
    raise unsupported("loss", model.loss, "Flux.jl")
