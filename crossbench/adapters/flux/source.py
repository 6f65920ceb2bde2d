"""Write layers and losses in Flux.jl, as its users do. Needs no Julia."""

from __future__ import annotations

from ... import models
from ...in_julia.source import (
    LossSource,
    activation_source,
    boolean,
    call,
    class_range,
    code,
    number,
    pool,
)
from ...models.model import Model, NamedLayer
from ...source.layers import LayerSource
from ...source.statements import Call, one_or_both, unless, unsupported

TIED = "embedding"
"""The variable of the layer whose weight the last one shares."""


def layer_source(named: NamedLayer, *activation: str) -> LayerSource:
    """Return how a layer is written. activation: the function that it applies itself."""
    shape = named.input_shape
    features = shape[-1]
    match named.layer:
        case models.Conv(channels, kernel, stride, padding, bias):
            options = {
                "stride": unless(1, one_or_both(stride[::-1])),
                "pad": unless(0, one_or_both(padding[::-1])),
                "bias": unless("true", boolean(bias)),
            }
            widths = f"{shape[0]} => {channels}"
            build = call("Conv", kernel[::-1], widths, *activation, **options)
            return LayerSource(build)
        case models.MaxPool(window, stride):
            return LayerSource(pool("MaxPool", window, stride))
        case models.AveragePool(window, stride, padding):
            return LayerSource(pool("MeanPool", window, stride, padding))
        case models.LeakyReLU(slope):
            return LayerSource(None, f"elementwise(leakyrelu, {number(slope)})({{x}})")
        case models.ReLU() | models.GELU():
            return LayerSource(None, f"elementwise({activation_source(named.layer)})({{x}})")
        case models.Flatten():
            return LayerSource(None, "Flux.flatten({x})")
        case models.ToSequence():
            return LayerSource(None, "to_sequence({x})")
        case models.Dense(width, bias):
            bias_option = unless("true", boolean(bias))
            build = call("Dense", f"{features} => {width}", *activation, bias=bias_option)
            return LayerSource(build)
        case models.BatchNorm(epsilon, momentum):
            # Flux's momentum is the weight of the new value, the description's of the old one; both
            # numbers are of one type
            given = {"eps": code(epsilon), "momentum": code(1 - momentum)}
            options = given if given != {"eps": "1e-5", "momentum": "0.1"} else {}
            return LayerSource(call("BatchNorm", shape[0], *activation, **options))
        case models.LayerNorm(epsilon, bias):
            name = "LayerNorm" if bias else "layer_norm"
            return LayerSource(call(name, features, eps=f"eps_for({code(epsilon)})"))
        case models.RMSNorm(epsilon):
            return LayerSource(call("RMSNorm", f"ones32({features})", number(epsilon)))
        case models.Dropout(rate):
            return LayerSource(call("Dropout", rate))
        case models.GlobalAveragePool() if len(shape) == 3:
            return LayerSource(call("GlobalMeanPool"), "Flux.flatten({layer}({x}))")
        case models.GlobalAveragePool():
            return LayerSource(None, "sequence_mean({x})")
        case models.Embedding(vocabulary, width):
            build = call("Flux.Embedding", f"{vocabulary} => {width}")
            return LayerSource(build)
        case models.OneHot(vocabulary):
            return LayerSource(None, f"OneHot{{T}}(1:{vocabulary})({{x}})")
        case models.Unembedding():
            return LayerSource(call("Unembedding", f"{TIED}.weight"))
        case models.PositionEmbedding():
            return LayerSource(call("PositionEmbedding", f"zeros32({features}, {shape[0]})"))
        case models.ClassToken():
            return LayerSource(call("ClassToken", f"zeros32({features})"))
        case models.FirstOfSequence():
            return LayerSource(None, "first_of_sequence({x})")
        case models.MultiHeadAttention(heads, causal, bias):
            options = {"nheads": heads, "bias": unless("false", boolean(bias))}
            build = call("MultiHeadAttention", features, **options)
            if not causal:
                return LayerSource(build, "first({layer}({x}))")
            return LayerSource(Call("CausalAttention", (build,)))
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            cell = call(type(named.layer).__name__, f"{features} => {width}")
            if not bidirectional:
                return LayerSource(cell, "last_output({layer}({x}))")
            forward = Call("Chain", (cell, "last_output"))
            backward = Call("Chain", ("reverse_sequence", cell, "last_output"))
            return LayerSource(Call("Parallel", ("vcat", forward, backward)))
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
