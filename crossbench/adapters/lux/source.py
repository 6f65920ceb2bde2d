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
from ...source.statements import Call, one_or_both, unless, unsupported

MODULES = {
    "MLUtils": ("DataLoader",),
    "NNlib": ("gelu_erf", "gelu_tanh", "leakyrelu"),
    "OneHotArrays": ("onecold", "onehotbatch"),
}
"""Packages that programs take single names from."""


def layer_source(named: NamedLayer, *activation: str) -> str | Call:
    """Return a layer as the item of a Chain, which makes a layer of a function.

    activation: the function that the layer applies itself.
    """
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
            return call("Conv", kernel[::-1], widths, *activation, **options)
        case models.MaxPool(window, stride):
            return pool("MaxPool", window, stride)
        case models.AveragePool(window, stride, padding):
            return pool("MeanPool", window, stride, padding)
        case models.LeakyReLU(slope):
            return f"elementwise(leakyrelu, {number(slope)})"
        case models.ReLU() | models.GELU():
            return f"elementwise({activation_source(named.layer)})"
        case models.Flatten():
            return call("FlattenLayer")
        case models.ToSequence():
            return "to_sequence"
        case models.Dense(width, bias):
            bias_option = unless("true", boolean(bias))
            return call("Dense", f"{features} => {width}", *activation, use_bias=bias_option)
        case models.BatchNorm(epsilon, momentum):
            # Lux's momentum is the weight of the new value, the description's of the old one
            norms = {"epsilon": epsilon, "momentum": 1 - momentum}
            return call("BatchNorm", shape[0], *activation, **norms)
        case models.LayerNorm(epsilon, bias):
            if not bias:
                return call("layer_norm", features, epsilon=epsilon)
            return call("LayerNorm", f"({features}, 1)", dims=1, epsilon=epsilon)
        case models.RMSNorm(epsilon):
            return call("RMSNorm", features, epsilon=epsilon)
        case models.Dropout(rate):
            return call("Dropout", rate)
        case models.GlobalAveragePool() if len(shape) == 3:
            return call("Chain", call("GlobalMeanPool"), call("FlattenLayer"))
        case models.GlobalAveragePool():
            return "sequence_mean"
        case models.Embedding(vocabulary, width):
            return call("Embedding", f"{vocabulary} => {width}")
        case models.OneHot(vocabulary):
            return f"onehot(T, 1:{vocabulary})"
        case models.PositionEmbedding():
            return call("position_embedding", features, shape[0])
        case models.ClassToken():
            return call("class_token", features)
        case models.FirstOfSequence():
            return "first_of_sequence"
        case models.MultiHeadAttention(heads, causal, bias):
            attention = call(
                "MultiHeadAttention",
                features,
                nheads=heads,
                dense_kwargs="(; use_bias = true)" if bias else None,
                is_causal="true" if causal else None,
            )
            # the second output are the scores
            return Call("Chain", (attention, "first"))
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            cell = call(f"{type(named.layer).__name__}Cell", f"{features} => {width}")
            forward = Call("Recurrence", (cell,))
            if not bidirectional:
                return forward
            backward = Call("Chain", ("ReverseSequence(2)", forward))
            return Call("Parallel", ("vcat", forward, backward))
    raise unsupported("layer", named.layer, "Lux.jl")


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
