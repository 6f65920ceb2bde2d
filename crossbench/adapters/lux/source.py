"""Write layers and losses in Lux.jl, as its users do. Needs no Julia."""

from __future__ import annotations

from ... import models
from ...in_julia.source import (
    LossSource,
    call,
    class_range,
    code,
    features_first,
    grouped_attention,
    number,
    shared_layer,
)
from ...models.layers.layer import channels
from ...models.model import Model, NamedLayer
from ...models.parameters import Shape
from ...source.statements import Call, unless, unsupported

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
    if alike := shared_layer(named, activation, bias="use_bias"):
        return alike
    shape = named.input_shape
    features = shape[-1]
    match named.layer:
        case models.Flatten():
            return call("FlattenLayer")
        case models.Reshape(to):
            return call("ReshapeLayer", to[::-1])
        case models.PReLU(per_channel):
            return call("prelu", channels(shape) if per_channel else 1)
        case models.BatchNorm(epsilon, momentum, affine):
            # Lux's momentum is the weight of the new value, the description's of the old one
            norms = {"epsilon": epsilon, "momentum": 1 - momentum, "affine": unless(True, affine)}
            return features_first(call("BatchNorm", channels(shape), *activation, **norms), shape)
        case models.GroupNorm(groups, epsilon, affine):
            norms = {"epsilon": epsilon, "affine": unless(True, affine)}
            return call("GroupNorm", shape[0], groups, *activation, **norms)
        case models.LayerNorm(epsilon, False, True) if len(shape) < 3:
            return call("layer_norm", features, epsilon=epsilon)
        case models.LayerNorm(epsilon, True, True) if len(shape) == 2:
            return call("LayerNorm", f"({features}, 1)", dims=1, epsilon=epsilon)
        case models.LayerNorm(epsilon, bias, affine):
            norms = {"dims": 3 if len(shape) == 3 else 1, "epsilon": epsilon}
            norm = call("LayerNorm", f"({channels(shape)},)", **norms, affine=False)
            return scaled(norm, shape, affine, bias)
        case models.RMSNorm(epsilon, affine) if len(shape) == 3:
            return scaled(f"rms_norm({number(epsilon)})", shape, affine, False)
        case models.RMSNorm(epsilon, affine):
            return call("RMSNorm", features, epsilon=epsilon, affine=unless(True, affine))
        case models.Scale():
            return call("channel_scale", channels(shape))
        case models.GlobalAveragePool():
            return call("Chain", call("GlobalMeanPool"), call("FlattenLayer"))
        case models.GlobalMaxPool():
            return call("Chain", call("GlobalMaxPool"), call("FlattenLayer"))
        case models.Embedding(vocabulary, width):
            return call("Embedding", f"{vocabulary} => {width}")
        case models.OneHot(vocabulary):
            return f"onehot(T, 1:{vocabulary})"
        case models.PositionEmbedding():
            return call("position_embedding", features, shape[0])
        case models.SinusoidalPositions():
            return call("sinusoidal_positions", "T", features, shape[0])
        case models.ClassToken():
            return call("class_token", features)
        case models.MultiHeadAttention(is_plain=False) as layer:
            own_norm = None
            if layer.norm:
                own_norm = str(call("RMSNorm", layer.width(shape), epsilon=layer.norm.epsilon))
            names = ("grouped_query_attention", "rotary_embedding")
            own_bias = unless(True, layer.bias)
            return grouped_attention(named, layer, *names, own_norm, use_bias=own_bias)
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
        case models.LSTM() | models.GRU():
            return recurrent(named.layer, features)
    raise unsupported("layer", named.layer, "Lux.jl")


def scaled(norm: str | Call, shape: Shape, affine: bool, bias: bool) -> str | Call:
    """Return a norm with a weight and a bias, or not: Lux's own have the axes of what they scale,
    or are of vectors and sequences alone.
    """
    if not affine:
        return norm
    return call("Chain", norm, call("channel_affine" if bias else "channel_scale", channels(shape)))


def recurrent(layer: models.Recurrent, features: int) -> Call:
    """Return an LSTM or a GRU as the item of a Chain; the outputs of a Recurrence are a vector."""
    cell = call(f"{type(layer).__name__}Cell", f"{features} => {layer.features}")
    forward: Call = call("Recurrence", cell, return_sequence=True if layer.sequences else None)
    outputs = ("stack_sequence",) if layer.sequences else ()
    backward = Call("Chain", ("ReverseSequence(2)", forward, *outputs))
    if layer.sequences:
        backward = Call("Chain", (*backward.arguments, "ReverseSequence(2)"))
        forward = Call("Chain", (forward, *outputs))
    return Call("Parallel", ("vcat", forward, backward)) if layer.bidirectional else forward


def loss_source(model: Model, first: int = 0) -> LossSource:
    """Return a model's loss. first: the first class."""
    match model.loss:
        case models.SoftmaxCrossEntropy(smoothing):
            options = f", label_smoothing = {code(smoothing)}" if smoothing else ""
            targets = f"onehotbatch(labels, {class_range(model, first)})"
            match len(model.output_shape):
                case 2 if smoothing:  # Lux would divide by the length of the sequence
                    rest = number(smoothing / model.output_shape[-1])
                    options, targets = "", f"{number(1 - smoothing)} .* {targets} .+ {rest}"
                case 3:  # the channels are the third axis
                    options += ", dims = 3"
                    targets = f"permutedims({targets}, (2, 3, 1, 4))"
            made = f"CrossEntropyLoss(; logits = Val(true){options})"
        case models.BinaryCrossEntropy():
            made = "BinaryCrossEntropyLoss(; logits = Val(true))"
            targets = "reshape(T.(labels), 1, :)"
        case models.MeanSquaredError():
            made, targets = "MSELoss()", "T.(labels)"
        case models.AbsoluteError():
            made, targets = "MAELoss()", "T.(labels)"
        case models.Huber(delta):
            made, targets = f"HuberLoss(; delta = {number(delta)})", "T.(labels)"
        case models.GivenGradient():
            return LossSource("", "labels")
        case other:
            raise unsupported("loss", other, "Lux.jl")
    return LossSource("lossfn", targets, made)
