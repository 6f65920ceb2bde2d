"""Write programs in Flux.jl, as its users do: the line of each layer and loss, and the program of a
part of a training step. Needs no Julia.
"""

from __future__ import annotations

from ... import models
from ...in_julia.part_program import (
    PartDialect,
    Timed,
    output_gradient,
    part_input,
    part_program as julia_part_program,
    printed_sums,
)
from ...in_julia.source import (
    LINE,
    TO_SEQUENCE,
    Imports,
    LossSource,
    activation_source,
    boolean,
    call,
    class_range,
    code,
    number,
    numbers,
    parameter_sources,
)
from ...models.model import Model, NamedLayer
from ...models.parts import Part
from ...source.layers import LayerLines, LayerSource, ParameterSource, output_lines
from ...source.part_programs import SCALE
from ...source.statements import Call, indented, one_or_both, unless, unsupported


def part_program(part: Part, model: Model, batch_size: int, threads: int) -> str:
    """Return the program of a part of a training step."""
    return julia_part_program(FluxPart(), part, model, batch_size, threads)


class FluxPart(PartDialect):
    """Writes what is Flux's own in the program of a part."""

    title = "Flux.jl"
    package = "Flux"
    autodiff = "Flux"
    optimisers = "Flux"

    def imports(self, text: str) -> Imports:
        return Imports(("Flux",))

    def layers(self, part: Part, batch_size: int) -> Timed:
        return _layers(part, batch_size)

    def loss(self, model: Model) -> LossSource:
        return loss_source(model)


def _layers(part: Part, batch_size: int) -> Timed:
    layers = [LayerLines(named, layer_source(named)) for named in part.layers]
    held = [layer.name for layer in layers if layer.source.build]
    given = ", ".join([*held, "x", "output_gradient"])
    trained = any(layer.source.parameters for layer in layers)
    results = ["gradient"] * trained + ["x_gradient"] * bool(part.before)
    unpacked = ", ".join(results) if len(results) > 1 else f"{results[0]},"
    return Timed(
        definitions=[text for layer in layers for text in layer.source.definitions],
        step=[
            f"function step({given})",
            *indented(_pullback(part, layers)),
            "    return output, back(output_gradient)",
            "end",
        ],
        setup=[
            *(line for layer in layers for line in built(layer)),
            f"x = {part_input(part, batch_size)}",
            f"output_gradient = {output_gradient(part, batch_size)}",
        ],
        call=[
            f"seconds = [@elapsed step({given}) for _ = 1:WARM_UP+CALLS]",
            f"output, ({unpacked}) = step({given})",
        ],
        printed=printed_sums(part, layers, "gradient.{path}"),
    )


def _pullback(part: Part, layers: list[LayerLines]) -> list[str]:
    """Return the statement of a forward pass, which returns the output and its backward pass."""
    primals = [layer.name for layer in layers if layer.source.parameters]
    primals += ["x"] * bool(part.before)
    given = ", ".join(primals)
    forward = output_lines(layers, "")
    arguments = f"({given})" if len(primals) > 1 else given
    line = f"output, back = Flux.pullback({arguments} -> {forward[-1]}, {given})"
    if len(forward) == 1 and len(line) <= LINE - 4:
        return [line]
    return [f"output, back = Flux.pullback({given}) do {given}", *indented(forward), "end"]


def built(layer: LayerLines) -> list[str]:
    """Return the statements that make a layer and set its parameters."""
    source = layer.source
    lines = []
    if source.build:
        build = Call("to_T", (source.build,)) if source.parameters else source.build
        lines.append(build.assigned_to(layer.name))
    return lines + [f"{layer.name}.{p.path} .= {p.value}" for p in source.parameters.values()]


def layer_source(named: NamedLayer, *activation: str) -> LayerSource:
    """Return how a layer is written. activation: the function that it applies itself."""
    shape = named.input_shape
    features = shape[-1]
    own = parameters(named)
    match named.layer:
        case models.Conv(channels, kernel, stride, padding, bias):
            options = {
                "stride": unless(1, one_or_both(stride[::-1])),
                "pad": unless(0, one_or_both(padding[::-1])),
                "bias": unless("true", boolean(bias)),
            }
            widths = f"{shape[0]} => {channels}"
            build = call("Conv", kernel[::-1], widths, *activation, **options)
            return LayerSource(build, parameters=own)
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
            return LayerSource(build, parameters=own)
        case models.BatchNorm(epsilon, momentum):
            # Flux's momentum is the weight of the new value, the description's of the old one
            momentum_option = unless("0.1", code(1 - momentum))
            options = {"eps": unless(1e-5, epsilon), "momentum": momentum_option}
            build = call("BatchNorm", shape[0], *activation, **options)
            return LayerSource(build, parameters=own)
        case models.LayerNorm(epsilon, bias):
            name, defined = ("LayerNorm", ()) if bias else ("layer_norm", (LAYER_NORM,))
            build = call(name, features, eps=f"eps_for({code(epsilon)})")
            return LayerSource(build, parameters=own, definitions=(EPS_FOR, *defined))
        case models.RMSNorm(epsilon):
            build = call("RMSNorm", f"ones32({features})", number(epsilon))
            return LayerSource(build, parameters=own, definitions=(RMS_NORM,))
        case models.Dropout(rate):
            return LayerSource(call("Dropout", rate))
        case models.GlobalAveragePool() if len(shape) == 3:
            return LayerSource(call("GlobalMeanPool"), "Flux.flatten({layer}({x}))")
        case models.GlobalAveragePool():
            return LayerSource(None, "dropdims(mean({x}; dims = 2); dims = 2)")
        case models.Embedding(vocabulary, width):
            build = call("Flux.Embedding", f"{vocabulary} => {width}")
            return LayerSource(build, parameters=own)
        case models.OneHot(vocabulary):
            encoded = f"T.(Flux.onehotbatch({{x}}, 1:{vocabulary}))"
            return LayerSource(None, f"Flux.@ignore_derivatives({encoded})")
        case models.Unembedding(vocabulary):
            value = f"T({SCALE}) .* {numbers(vocabulary, features)}"
            build = call("Unembedding", f"zeros32({features}, {vocabulary})")
            weight = {"weight": ParameterSource("weight", value)}
            return LayerSource(build, parameters=weight, definitions=(UNEMBEDDING,))
        case models.PositionEmbedding():
            build = call("PositionEmbedding", f"zeros32({features}, {shape[0]})")
            return LayerSource(build, parameters=own, definitions=(POSITION_EMBEDDING,))
        case models.ClassToken():
            build = call("ClassToken", f"zeros32({features})")
            return LayerSource(build, parameters=own, definitions=(CLASS_TOKEN,))
        case models.Residual(()):  # of equal branches
            return LayerSource(None, "{x} .+ {x}")
        case models.FirstOfSequence():
            return LayerSource(None, "{x}[:, 1, :]")
        case models.MultiHeadAttention(heads, causal, bias):
            options = {"nheads": heads, "bias": unless("false", boolean(bias))}
            build = call("MultiHeadAttention", features, **options)
            if not causal:
                return LayerSource(build, "first({layer}({x}))", parameters=own)
            build = Call("CausalAttention", (build,))
            return LayerSource(build, parameters=own, definitions=(CAUSAL_ATTENTION,))
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            cell = call(type(named.layer).__name__, f"{features} => {width}")
            if not bidirectional:
                return LayerSource(cell, "{layer}({x})[:, end, :]", parameters=own)
            forward = Call("Chain", (cell, "last_output"))
            backward = Call("Chain", ("reverse_sequence", cell, "last_output"))
            build = Call("Parallel", ("vcat", forward, backward))
            return LayerSource(build, parameters=own, definitions=(BOTH_DIRECTIONS,))
    raise unsupported("layer", named.layer, "Flux.jl")


NORM = {"weight": "diag.scale", "bias": "diag.bias"}
BATCH_NORM = {"weight": "γ", "bias": "β"}
ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
CELL = {"weight_ih": "Wi", "weight_hh": "Wh"}


def parameters(named: NamedLayer) -> dict[str, ParameterSource]:
    """Return the trained parameters of a layer, in Flux's form."""
    return parameter_sources(named, _path)


def _path(named: NamedLayer, name: str) -> str:
    """Return the field of a layer, or of its gradient, that holds a parameter."""
    match named.layer:
        case models.BatchNorm():
            return BATCH_NORM[name]
        case models.LayerNorm():
            return NORM[name]
        case models.MultiHeadAttention():
            projection, kind = name.split("_")
            start = "attention." if named.layer.causal else ""
            return f"{start}{ATTENTION[projection]}.{kind}"
        case models.LSTM(bidirectional=both) | models.GRU(bidirectional=both):
            bias = "bias" if isinstance(named.layer, models.LSTM) else "b"
            base = name.removesuffix("_reverse")
            cell = f"cell.{CELL.get(base, bias)}"
            if not both:
                return cell
            return f"layers[1].layers[1].{cell}" if base == name else f"layers[2].layers[2].{cell}"
    return name


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
