"""Write layers and losses in Flux.jl, as its users do. Needs no Julia."""

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
        case models.Reshape(to):
            return [call("reshaped", *to[::-1])]
        case models.PReLU(per_channel):
            return [call("PReLU", f"fill(0.25f0, {channels(shape) if per_channel else 1})")]
        case models.BatchNorm(epsilon, momentum, affine):
            # Flux's momentum is the weight of the new value, the description's of the old one; both
            # numbers are of one type
            given = {"eps": code(epsilon), "momentum": code(1 - momentum)}
            options = given if given != {"eps": "1e-5", "momentum": "0.1"} else {}
            options |= {"affine": unless(True, affine)}
            made = call("BatchNorm", channels(shape), *activation, **options)
            return [features_first(made, shape)]
        case models.GroupNorm(groups, epsilon, affine):
            # Flux's GroupNorm has a momentum that it does not use, of the type of eps
            options = {"eps": code(epsilon), "momentum": "0.1"} if epsilon != 1e-5 else {}
            options |= {"affine": unless(True, affine)}
            return [call("GroupNorm", shape[0], groups, *activation, **options)]
        case models.LayerNorm(epsilon, bias, affine):
            eps = {"eps": f"eps_for({code(epsilon)})"}
            if len(shape) == 3:
                return [call("PictureNorm", *weight_and_bias(shape[0], affine, bias), **eps)]
            name = "LayerNorm" if bias or not affine else "layer_norm"
            return [call(name, features, **eps, affine=unless(True, affine))]
        case models.RMSNorm():
            return [rms_norm(channels(shape), named.layer)]
        case models.Scale():
            return [call("ChannelScale", f"ones32({channels(shape)})")]
        case models.GlobalAveragePool():
            return [call("GlobalMeanPool"), "Flux.flatten"]
        case models.GlobalMaxPool():
            return [call("GlobalMaxPool"), "Flux.flatten"]
        case models.Embedding(vocabulary, width):
            return [call("Flux.Embedding", f"{vocabulary} => {width}")]
        case models.OneHot(vocabulary):
            return [f"OneHot{{T}}(1:{vocabulary})"]
        case models.Unembedding():
            return [call("Unembedding", f"{TIED}.weight")]
        case models.PositionEmbedding():
            return [call("PositionEmbedding", f"zeros32({features}, {shape[0]})")]
        case models.SinusoidalPositions():
            table = call("sinusoids", "T", features, shape[0])
            return [Call("SinusoidalPositions", (table,))]
        case models.ClassToken():
            return [call("ClassToken", f"zeros32({features})")]
        case models.MultiHeadAttention(is_plain=False) as layer:
            norm = str(rms_norm(layer.width(shape), layer.norm)) if layer.norm else None
            names = ("GroupedQueryAttention", "Rotary")
            return [grouped_attention(named, layer, *names, norm, bias=unless(True, layer.bias))]
        case models.MultiHeadAttention(heads, causal, bias):
            own = unless(False, bias)
            build = call("MultiHeadAttention", features, nheads=heads, bias=own)
            if not causal:
                return [build, "first"]
            return [Call("CausalAttention", (build,))]
        case models.LSTM(both_biases=False) | models.GRU():  # Flux' LSTM has one bias
            return recurrent(named.layer, features)
    raise unsupported("layer", named.layer, "Flux.jl")


def weight_and_bias(count: int, affine: bool, bias: bool = True) -> tuple[str, str]:
    """Return the expressions of a norm's weight and bias of so many channels: as Flux has them,
    true and false where there are none.
    """
    weight = f"ones32({count})" if affine else "true"
    return weight, f"zeros32({count})" if affine and bias else "false"


def recurrent(layer: models.Recurrent, features: int) -> list[str | Call]:
    """Return an LSTM or a GRU as items of a Chain."""
    sizes = f"{features} => {layer.features}"
    cell = call(type(layer).__name__, sizes)
    if layer.both_biases:
        cell = call("Recurrence", call("BiasedGRUCell", sizes))
    if not layer.bidirectional:
        return [cell] if layer.sequences else [cell, "last_output"]
    if layer.sequences:
        forward, last = cell, "reverse_sequence"
    else:
        forward, last = Call("Chain", (cell, "last_output")), "last_output"
    backward = Call("Chain", ("reverse_sequence", cell, last))
    return [Call("Parallel", ("vcat", forward, backward))]


def rms_norm(features: int, norm: models.RMSNorm) -> Call:
    weight, _ = weight_and_bias(features, norm.affine)
    return call("RMSNorm", weight, number(norm.epsilon))


def loss_source(model: Model, first: int = 0) -> LossSource:
    """Return a model's loss. first: the first class."""
    match model.loss:
        case models.SoftmaxCrossEntropy(smoothing):
            classes = class_range(model, first)
            if len(model.output_shape) == 3:
                targets = f"onehot_pixels(labels, {classes})"
                if smoothing:  # Flux' label_smoothing is over the first axis
                    rest = number(smoothing / model.output_shape[0])
                    targets = f"{number(1 - smoothing)} .* {targets} .+ {rest}"
                return LossSource("pixel_crossentropy", targets)
            targets = f"Flux.onehotbatch(labels, {classes})"
            if smoothing:
                targets = f"Flux.label_smoothing(T.({targets}), {number(smoothing)})"
            return LossSource("Flux.logitcrossentropy", targets)
        case models.BinaryCrossEntropy():
            return LossSource("Flux.logitbinarycrossentropy", "reshape(T.(labels), 1, :)")
        case models.MeanSquaredError():
            return LossSource("Flux.mse", "T.(labels)")
        case models.AbsoluteError():
            return LossSource("Flux.mae", "T.(labels)")
        case models.Huber(1):
            return LossSource("Flux.huber_loss", "T.(labels)")
        case models.Huber(delta):
            return LossSource("lossfn", "T.(labels)", f"huber({code(delta)})")
        case models.GivenGradient():
            return LossSource("", "labels")
    raise unsupported("loss", model.loss, "Flux.jl")
