"""Write layers and losses in Flux.jl, as its users do. Needs no Julia."""

from __future__ import annotations

from ... import models
from ...in_julia.source import (
    TO_SEQUENCE,
    LossSource,
    activation_source,
    boolean,
    call,
    class_range,
    code,
    number,
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
            stride_option = None if stride == window else one_or_both(stride[::-1])
            return LayerSource(call("MaxPool", window[::-1], stride=stride_option))
        case models.ReLU() | models.GELU():
            return LayerSource(None, f"{activation_source(named.layer)}.({{x}})")
        case models.Flatten():
            return LayerSource(None, "Flux.flatten({x})")
        case models.ToSequence():
            return LayerSource(None, "to_sequence({x})", definitions=(TO_SEQUENCE,))
        case models.Dense(width, bias):
            bias_option = unless("true", boolean(bias))
            build = call("Dense", f"{features} => {width}", *activation, bias=bias_option)
            return LayerSource(build)
        case models.BatchNorm(epsilon, momentum):
            # Flux's momentum is the weight of the new value, the description's of the old one
            momentum_option = unless("0.1", code(1 - momentum))
            options = {"eps": unless(1e-5, epsilon), "momentum": momentum_option}
            build = call("BatchNorm", shape[0], *activation, **options)
            return LayerSource(build)
        case models.LayerNorm(epsilon, bias):
            name, defined = ("LayerNorm", ()) if bias else ("layer_norm", (LAYER_NORM,))
            build = call(name, features, eps=f"eps_for({code(epsilon)})")
            return LayerSource(build, definitions=(EPS_FOR, *defined))
        case models.RMSNorm(epsilon):
            build = call("RMSNorm", f"ones32({features})", number(epsilon))
            return LayerSource(build, definitions=(RMS_NORM,))
        case models.Dropout(rate):
            return LayerSource(call("Dropout", rate))
        case models.GlobalAveragePool() if len(shape) == 3:
            return LayerSource(call("GlobalMeanPool"), "Flux.flatten({layer}({x}))")
        case models.GlobalAveragePool():
            return LayerSource(None, "dropdims(mean({x}; dims = 2); dims = 2)")
        case models.Embedding(vocabulary, width):
            build = call("Flux.Embedding", f"{vocabulary} => {width}")
            return LayerSource(build)
        case models.OneHot(vocabulary):
            encoded = f"T.(Flux.onehotbatch({{x}}, 1:{vocabulary}))"
            return LayerSource(None, f"Flux.@ignore_derivatives({encoded})")
        case models.Unembedding():
            build = call("Unembedding", f"{TIED}.weight")
            return LayerSource(build, definitions=(UNEMBEDDING,))
        case models.PositionEmbedding():
            build = call("PositionEmbedding", f"zeros32({features}, {shape[0]})")
            return LayerSource(build, definitions=(POSITION_EMBEDDING,))
        case models.ClassToken():
            build = call("ClassToken", f"zeros32({features})")
            return LayerSource(build, definitions=(CLASS_TOKEN,))
        case models.FirstOfSequence():
            return LayerSource(None, "{x}[:, 1, :]")
        case models.MultiHeadAttention(heads, causal, bias):
            options = {"nheads": heads, "bias": unless("false", boolean(bias))}
            build = call("MultiHeadAttention", features, **options)
            if not causal:
                return LayerSource(build, "first({layer}({x}))")
            build = Call("CausalAttention", (build,))
            return LayerSource(build, definitions=(CAUSAL_ATTENTION,))
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            cell = call(type(named.layer).__name__, f"{features} => {width}")
            if not bidirectional:
                return LayerSource(cell, "{layer}({x})[:, end, :]")
            forward = Call("Chain", (cell, "last_output"))
            backward = Call("Chain", ("reverse_sequence", cell, "last_output"))
            build = Call("Parallel", ("vcat", forward, backward))
            return LayerSource(build, definitions=(BOTH_DIRECTIONS,))
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


EPS_FOR = '''
"""
Return the eps with which a LayerNorm adds epsilon to the variance: Flux before 0.16.11
adds the square of eps.
"""
eps_for(epsilon) = Flux.normalise([-1.0, 1.0]; eps = 3.0)[2] < 0.4 ? sqrt(epsilon) : epsilon
'''
LAYER_NORM = '''
"""Make a LayerNorm without a bias."""
layer_norm(features; eps) =
    LayerNorm(identity, Flux.Scale(features; bias = false), eps, (features,), true)
'''
RMS_NORM = '''
"""Divide by the root of the mean square of the features."""
struct RMSNorm{W,E}
    weight::W
    epsilon::E
end
Flux.@layer RMSNorm
(norm::RMSNorm)(x) = norm.weight .* x ./ sqrt.(mean(abs2, x; dims = 1) .+ norm.epsilon)
'''
UNEMBEDDING = '''
"""Multiply by the weight of an embedding."""
struct Unembedding{W}
    weight::W
end
Flux.@layer Unembedding
(layer::Unembedding)(x) =
    reshape(layer.weight' * reshape(x, size(x, 1), :), :, size(x)[2:end]...)
'''
POSITION_EMBEDDING = '''
"""Add a weight for each place of a sequence."""
struct PositionEmbedding{W}
    weight::W
end
Flux.@layer PositionEmbedding
(layer::PositionEmbedding)(x) = x .+ layer.weight
'''
CAUSAL_ATTENTION = '''
"""Attend to the place itself and those before, and return no scores."""
struct CausalAttention{A}
    attention::A
end
Flux.@layer CausalAttention
(layer::CausalAttention)(x) =
    first(layer.attention(x; mask = make_causal_mask(x; dims = 2)))
'''
CLASS_TOKEN = '''
"""Put the same weight before each sequence."""
struct ClassToken{W}
    weight::W
end
Flux.@layer ClassToken
(layer::ClassToken)(x) = hcat(repeat(layer.weight, 1, 1, size(x, 3)), x)
'''
BOTH_DIRECTIONS = """
last_output(x) = x[:, end, :]
reverse_sequence(x) = reverse(x; dims = 2)
"""
