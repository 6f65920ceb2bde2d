"""Write layers and losses in Lux.jl, as its users do. Needs no Julia."""

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

MODULES = {
    "MLUtils": ("DataLoader",),
    "NNlib": ("gelu_erf", "gelu_tanh", "leakyrelu"),
    "OneHotArrays": ("onecold", "onehotbatch"),
}
"""Packages that programs take single names from."""


def layer_source(named: NamedLayer, *activation: str) -> LayerSource:
    """Return how a layer is written. activation: the function that it applies itself."""
    shape = named.input_shape
    features = shape[-1]
    match named.layer:
        case models.Conv(channels, kernel, stride, padding, bias):
            options = {
                "stride": unless(1, one_or_both(stride[::-1])),
                "pad": unless(0, one_or_both(padding[::-1])),
                "use_bias": unless("true", boolean(bias)),
            }
            widths = f"{shape[0]} => {channels}"
            build = call("Conv", kernel[::-1], widths, *activation, **options)
            return LayerSource(build)
        case models.MaxPool(window, stride):
            return LayerSource(pool("MaxPool", window, stride))
        case models.AveragePool(window, stride, padding):
            return LayerSource(pool("MeanPool", window, stride, padding))
        case models.LeakyReLU(slope):
            return _function(f"elementwise(leakyrelu, {number(slope)})")
        case models.ReLU() | models.GELU():
            return _function(f"elementwise({activation_source(named.layer)})")
        case models.Flatten():
            return LayerSource(call("FlattenLayer"))
        case models.ToSequence():
            return _function("to_sequence")
        case models.Dense(width, bias):
            bias_option = unless("true", boolean(bias))
            build = call("Dense", f"{features} => {width}", *activation, use_bias=bias_option)
            return LayerSource(build)
        case models.BatchNorm(epsilon, momentum):
            # Lux's momentum is the weight of the new value, the description's of the old one
            norms = {"epsilon": epsilon, "momentum": 1 - momentum}
            build = call("BatchNorm", shape[0], *activation, **norms)
            return LayerSource(build)
        case models.LayerNorm(epsilon, bias):
            if not bias:
                return LayerSource(call("layer_norm", features, epsilon=epsilon))
            return LayerSource(call("LayerNorm", f"({features}, 1)", dims=1, epsilon=epsilon))
        case models.RMSNorm(epsilon):
            return LayerSource(call("RMSNorm", features, epsilon=epsilon))
        case models.Dropout(rate):
            return LayerSource(call("Dropout", rate))
        case models.GlobalAveragePool() if len(shape) == 3:
            return LayerSource(call("Chain", call("GlobalMeanPool"), call("FlattenLayer")))
        case models.GlobalAveragePool():
            return _function("sequence_mean")
        case models.Embedding(vocabulary, width):
            build = call("Embedding", f"{vocabulary} => {width}")
            return LayerSource(build)
        case models.OneHot(vocabulary):
            return _function(f"onehot(T, 1:{vocabulary})")
        case models.PositionEmbedding():
            return LayerSource(call("position_embedding", features, shape[0]))
        case models.ClassToken():
            return LayerSource(call("class_token", features))
        case models.FirstOfSequence():
            return _function("first_of_sequence")
        case models.MultiHeadAttention(heads, causal, bias):
            attention = call(
                "MultiHeadAttention",
                features,
                nheads=heads,
                dense_kwargs="(; use_bias = true)" if bias else None,
                is_causal="true" if causal else None,
            )
            # the second output are the scores
            return LayerSource(Call("Chain", (attention, "first")))
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            cell = call(f"{type(named.layer).__name__}Cell", f"{features} => {width}")
            forward = Call("Recurrence", (cell,))
            if not bidirectional:
                return LayerSource(forward)
            backward = Call("Chain", ("ReverseSequence(2)", forward))
            return LayerSource(Call("Parallel", ("vcat", forward, backward)))
    raise unsupported("layer", named.layer, "Lux.jl")


def _function(source: str) -> LayerSource:
    """Return how a function without parameters is written as a layer."""
    return LayerSource(Call(WRAPPED, (source,)))


WRAPPED = "WrappedFunction"
"""The layer that calls a function, which a Chain makes of a function itself."""


def loss_source(model: Model, first: int = 0) -> LossSource:
    """Return a model's loss. first: the first class."""
    match model.loss:
        case models.SoftmaxCrossEntropy(smoothing):
            options = f", label_smoothing = {code(smoothing)}" if smoothing else ""
            made = f"CrossEntropyLoss(; logits = Val(true){options})"
            targets = f"onehotbatch(labels, {class_range(model, first)})"
        case models.BinaryCrossEntropy():
            made = "BinaryCrossEntropyLoss(; logits = Val(true))"
            targets = "reshape(T.(labels), 1, :)"
        case models.MeanSquaredError():
            made, targets = "MSELoss()", "T.(labels)"
        case models.GivenGradient():
            return LossSource("", "labels")
        case other:
            raise unsupported("loss", other, "Lux.jl")
    return LossSource("lossfn", targets, made)
