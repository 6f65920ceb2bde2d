"""Write programs in Lux.jl, as its users do: the line of each layer and loss, and the program of a
part of a training step. Needs no Julia.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

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
    TO_SEQUENCE,
    Imports,
    LossSource,
    activation_source,
    boolean,
    call,
    class_range,
    code,
    numbers,
    parameter_sources,
    uses,
    written,
)
from ...models.model import Model, NamedLayer
from ...models.parts import Part
from ...source.layers import LayerLines, LayerSource, ParameterSource
from ...source.part_programs import SCALE
from ...source.statements import Call, one_or_both, unless, unsupported

MODULES = {
    "MLUtils": ("DataLoader",),
    "NNlib": ("gelu_erf", "gelu_tanh"),
    "OneHotArrays": ("onecold", "onehotbatch"),
}
"""Packages that programs take single names from."""


def part_program(part: Part, model: Model, batch_size: int, threads: int) -> str:
    """Return the program of a part of a training step."""
    return julia_part_program(LuxPart(), part, model, batch_size, threads)


class LuxPart(PartDialect):
    """Writes what is Lux's own in the program of a part."""

    title = "Lux.jl"
    package = "Lux"
    autodiff = "Zygote"
    optimisers = "Optimisers"

    def imports(self, text: str) -> Imports:
        others = [name for name in ("Optimisers", "Zygote") if uses(text, name)]
        return Imports(("Lux", *others), MODULES)

    def layers(self, part: Part, batch_size: int) -> Timed:
        return _layers(part, batch_size)

    def loss(self, model: Model) -> LossSource:
        return loss_source(model)


def _layers(part: Part, batch_size: int) -> Timed:
    layers = list(_placed(part))
    name = "layer" if len(layers) == 1 else "model"
    is_trained = any(layer.source.parameters for layer in layers)
    primals = ["ps"] * is_trained + ["x"] * bool(part.before)
    results = ["gradient"] * is_trained + ["x_gradient"] * bool(part.before)
    arguments, unpacked = primals[0], f"{results[0]},"
    if len(primals) > 1:
        arguments, unpacked = f"({', '.join(primals)})", ", ".join(results)
    forward = f"{arguments} -> {name}(x, ps, st), {', '.join(primals)}"
    given = f"{name}, ps, st, x, output_gradient"
    return Timed(
        definitions=[text for layer in layers for text in layer.source.definitions],
        step=[
            f"function step({given})",
            f"    (output, states), back = Zygote.pullback({forward})",
            "    found = back((output_gradient, nothing))",
            "    return output, states, Zygote.unthunk_tangent(found)  # computes them all",
            "end",
        ],
        setup=[
            *_built(name, layers),
            f"x = {part_input(part, batch_size)}",
            f"output_gradient = {output_gradient(part, batch_size)}",
        ],
        call=[
            f"seconds = [@elapsed step({given}) for _ = 1:WARM_UP+CALLS]",
            f"output, states, ({unpacked}) = step({given})",
        ],
        printed=printed_sums(part, layers, "gradient.{path}"),
    )


def _placed(part: Part) -> Iterator[LayerLines]:
    """Yield the layers of a part, whose parameters are found from the part's own."""
    for place, named in enumerate(part.layers, start=1):
        source = layer_source(named)
        if len(part.layers) > 1:
            moved = {
                name: replace(parameter, path=f"layer_{place}.{parameter.path}")
                for name, parameter in source.parameters.items()
            }
            source = replace(source, parameters=moved)
        yield LayerLines(named, source)


def _built(name: str, layers: list[LayerLines]) -> list[str]:
    """Return the statements that make the layers, and their parameters and states."""
    made = [layer.source.call for layer in layers]
    own = [p for layer in layers for p in layer.source.parameters.values()]
    setup = f"Lux.setup(Xoshiro(0), {name})"
    return [
        written(f"{name} = ", made[0] if len(made) == 1 else Call("Chain", tuple(made))),
        f"ps, st = to_T({setup})" if own else f"ps, st = {setup}",
        *(f"ps.{parameter.path} .= {parameter.value}" for parameter in own),
        *(f"ps.{path} .= 0  # a second bias" for path in second_biases(own)),
    ]


def second_biases(parameters: Iterable[ParameterSource]) -> list[str]:
    """Return the paths of the biases that cells have beside the described ones: they stay zero."""
    start = f"bias_{FIRST}"
    paths = (parameter.path for parameter in parameters)
    return [f"{p.removesuffix(FIRST)}{SECOND}" for p in paths if p.endswith(start)]


FIRST, SECOND = "ih", "hh"
"""How the names of a cell's two biases end: that for the input, and that for its last output."""


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
                "use_bias": unless("true", boolean(bias)),
            }
            widths = f"{shape[0]} => {channels}"
            build = call("Conv", kernel[::-1], widths, *activation, **options)
            return LayerSource(build, parameters=own)
        case models.MaxPool(window, stride):
            stride_option = None if stride == window else one_or_both(stride[::-1])
            return LayerSource(call("MaxPool", window[::-1], stride=stride_option))
        case models.ReLU() | models.GELU():
            return _function(f"x -> {activation_source(named.layer)}.(x)")
        case models.Flatten():
            return LayerSource(call("FlattenLayer"))
        case models.ToSequence():
            return _function("to_sequence", TO_SEQUENCE)
        case models.Dense(width, bias):
            bias_option = unless("true", boolean(bias))
            build = call("Dense", f"{features} => {width}", *activation, use_bias=bias_option)
            return LayerSource(build, parameters=own)
        case models.BatchNorm(epsilon, momentum):
            # Lux's momentum is the weight of the new value, the description's of the old one
            momentum_option = unless("0.1", code(1 - momentum))
            norms = {"epsilon": epsilon, "momentum": momentum_option}
            build = call("BatchNorm", shape[0], *activation, **norms)
            return LayerSource(build, parameters=own)
        case models.LayerNorm(epsilon, bias):
            if bias:
                build = call("LayerNorm", f"({features}, 1)", dims=1, epsilon=epsilon)
                return LayerSource(build, parameters=own)
            build = call("layer_norm", features, epsilon=epsilon)
            return LayerSource(build, parameters=own, definitions=(LAYER_NORM,))
        case models.RMSNorm(epsilon):
            return LayerSource(call("RMSNorm", features, epsilon=epsilon), parameters=own)
        case models.Dropout(rate):
            return LayerSource(call("Dropout", rate))
        case models.GlobalAveragePool() if len(shape) == 3:
            return LayerSource(call("Chain", call("GlobalMeanPool"), call("FlattenLayer")))
        case models.GlobalAveragePool():
            return _function("x -> dropdims(mean(x; dims = 2); dims = 2)")
        case models.Embedding(vocabulary, width):
            build = call("Embedding", f"{vocabulary} => {width}")
            return LayerSource(build, parameters=own)
        case models.OneHot(vocabulary):
            return _function(f"x -> T.(onehotbatch(x, 1:{vocabulary}))")
        case models.Unembedding(vocabulary):
            value = f"T({SCALE}) .* {numbers(vocabulary, features)}"
            build = call("unembedding", features, vocabulary)
            weight = {"weight": ParameterSource("weight", value)}
            return LayerSource(build, parameters=weight, definitions=(UNEMBEDDING,))
        case models.PositionEmbedding():
            build = call("position_embedding", features, shape[0])
            return LayerSource(build, parameters=own, definitions=(POSITION_EMBEDDING,))
        case models.ClassToken():
            build = call("class_token", features)
            return LayerSource(build, parameters=own, definitions=(CLASS_TOKEN,))
        case models.Residual(()):  # of equal branches
            return LayerSource(Call("SkipConnection", ("NoOpLayer()", "+")))
        case models.FirstOfSequence():
            return _function("x -> x[:, 1, :]")
        case models.MultiHeadAttention(heads, causal, bias):
            attention = call(
                "MultiHeadAttention",
                features,
                nheads=heads,
                dense_kwargs="(; use_bias = true)" if bias else None,
                is_causal="true" if causal else None,
            )
            # the second output are the scores
            return LayerSource(Call("Chain", (attention, "first")), parameters=own)
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            cell = call(f"{type(named.layer).__name__}Cell", f"{features} => {width}")
            forward = Call("Recurrence", (cell,))
            if not bidirectional:
                return LayerSource(forward, parameters=own)
            backward = Call("Chain", ("ReverseSequence(2)", forward))
            return LayerSource(Call("Parallel", ("vcat", forward, backward)), parameters=own)
    raise unsupported("layer", named.layer, "Lux.jl")


def _function(source: str, *definitions: str) -> LayerSource:
    """Return how a function without parameters is written as a layer."""
    return LayerSource(Call(WRAPPED, (source,)), definitions=definitions)


WRAPPED = "WrappedFunction"
"""The layer that calls a function, which a Chain makes of a function itself."""
NORM = {"weight": "scale", "bias": "bias"}
ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


def parameters(named: NamedLayer) -> dict[str, ParameterSource]:
    """Return the trained parameters of a layer, in Lux's form."""
    return parameter_sources(named, _path)


def _path(named: NamedLayer, name: str) -> str:
    """Return the fields of a layer's parameters, or of their gradient, that lead to one."""
    match named.layer:
        case models.LayerNorm(bias=False):
            return "layer_2.weight"
        case models.BatchNorm() | models.LayerNorm() | models.RMSNorm():
            return NORM[name]
        case models.MultiHeadAttention():
            projection, kind = name.split("_")
            return f"layer_1.{ATTENTION[projection]}.{kind}"
        case models.LSTM(bidirectional=both) | models.GRU(bidirectional=both):
            base = name.removesuffix("_reverse")
            own = f"bias_{FIRST}" if base == "bias" else base
            if not both:
                return own
            return f"layer_1.{own}" if base == name else f"layer_2.layer_2.{own}"
    return name


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
        case other:
            raise unsupported("loss", other, "Lux.jl")
    return LossSource("lossfn", targets, f"const lossfn = {made}")


LAYER_NORM = '''
"""Make a LayerNorm without a bias."""
layer_norm(features; epsilon) = Chain(
    LayerNorm((features, 1); dims = 1, epsilon, affine = false),
    Scale(features; use_bias = false),
)
'''
UNEMBEDDING = '''
"""Multiply by the weight of an embedding."""
function unembedding(features, vocabulary)
    return @compact(; weight = zeros32(features, vocabulary)) do x
        @return reshape(weight' * reshape(x, size(x, 1), :), :, size(x)[2:end]...)
    end
end
'''
POSITION_EMBEDDING = '''
"""Add a weight for each place of a sequence."""
function position_embedding(features, places)
    return @compact(; weight = zeros32(features, places)) do x
        @return x .+ weight
    end
end
'''
CLASS_TOKEN = '''
"""Put the same weight before each sequence."""
function class_token(features)
    return @compact(; weight = zeros32(features)) do x
        @return hcat(repeat(weight, 1, 1, size(x, 3)), x)
    end
end
'''
