"""Write programs in Flux.jl, as its users do: the line of each layer, loss and optimizer, and the
program of a part of a training step. Needs no Julia.

Julia's first axis is the one that runs fastest: the axes are the canonical ones, reversed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ... import models
from ...models.model import Model, NamedLayer
from ...models.parameters import Shape
from ...models.parts import LOSS, OPTIMIZER, Part
from ...models.training import Optimizer
from ...source.layers import LayerLines, LayerSource, ParameterSource, output_lines
from ...source.part_programs import (
    CALLS,
    GRADIENT_PHASE,
    MULTIPLIER,
    SCALE,
    WARM_UP,
    gradients,
    heading,
    outputs,
    takes_token_ids,
    trained_shapes,
)
from ...source.statements import (
    Call,
    bracketed,
    code as python_code,
    indented,
    one_or_both,
    unless,
    unsupported,
)

NUMBERS = """
# the same numbers in any language
numbers(size...; phase = 0) = reshape(T[sin(i^2 + phase) for i = 0:prod(size)-1], size)
total(array) = sum(abs, Float64.(array))
"""
LINE = 92
"""Characters of a line of Julia, as JuliaFormatter's default style has it."""


@dataclass(frozen=True)
class Timed:
    """Says what a program times, and what it prints.

    definitions: structs and functions. step: the function that is timed. setup: statements on what
    it is given. call: statements that time it and find its results. printed: lines for these.
    """

    definitions: list[str]
    step: list[str]
    setup: list[str]
    call: list[str]
    printed: list[str]


def part_program(part: Part, model: Model, batch_size: int, threads: int) -> str:
    """Return the program of a part of a training step."""
    timed = {LOSS: _loss, OPTIMIZER: _optimizer}.get(part.name, _layers)(part, batch_size)
    start = f"Start it by `julia --threads {threads}`, where Flux is installed."
    text = "\n".join([*timed.definitions, *timed.step, *timed.printed])
    constants = [f"const T, WARM_UP, CALLS = Float32, {WARM_UP}, {CALLS}"]
    if any("to_T(" in line for line in timed.setup):
        constants.append("const to_T = T == Float64 ? f64 : f32")
    blocks = [
        [
            heading(part, model, "Flux.jl", batch_size, start),
            "using Flux",
            "using LinearAlgebra: BLAS",
            "using Printf: @printf",
            f"using Statistics: {'mean, ' if 'mean(' in text else ''}median",
        ],
        constants,
        [NUMBERS.strip()],
        *([definition.strip()] for definition in timed.definitions),
        timed.step,
        [_blas_threads(part, threads), *timed.setup],
        timed.call,
        [PRINT_TIME, *timed.printed],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _blas_threads(part: Part, threads: int) -> str:
    """Return the statement that sets BLAS' threads: Julia's have the batch of a convolution."""
    if not any(isinstance(named.layer, models.Conv) for named in part.layers):
        return f"BLAS.set_num_threads({threads})"
    return "BLAS.set_num_threads(1)  # Julia's threads share the batch of a convolution"


PRINT_TIME = (
    '@printf("%.3f ms, Flux %s\\n", 1000 * median(seconds[WARM_UP+1:end]), pkgversion(Flux))'
)


def _layers(part: Part, batch_size: int) -> Timed:
    layers = [LayerLines(named, layer_source(named)) for named in part.layers]
    output_shape = part.layers[-1].output_shape
    output_gradient = numbers(batch_size, *output_shape, phase=GRADIENT_PHASE)
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
            f"x = {_input(part, batch_size)}",
            f"output_gradient = {output_gradient}",
        ],
        call=[
            f"seconds = [@elapsed step({given}) for _ = 1:WARM_UP+CALLS]",
            f"output, ({unpacked}) = step({given})",
        ],
        printed=_printed(part, layers),
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


def _printed(part: Part, layers: list[LayerLines]) -> list[str]:
    """Return the statements that print the sums of the output and of the gradients."""
    numbers = outputs(part, "total(output)", zeros="mean(output .== 0)")
    lines = [f'@printf("{name}: %.6g\\n", {number})' for name, number in numbers.items()]
    found = gradients(part, layers, "gradient.{path}", of_input="x_gradient")
    items = [f"{name} = {expression}" for name, expression in found.items()]
    if not items:
        return lines
    end = ")" if len(items) > 1 else ",)"
    return [
        *lines,
        bracketed("gradients = (", items, end),
        "for (name, array) in pairs(gradients)",
        '    @printf("gradient of %s: %.6g\\n", name, total(array))',
        "end",
    ]


def _input(part: Part, batch_size: int) -> str:
    """Return the input of a part; token ids count from 1."""
    shape, vocabulary = part.layers[0].input_shape, part.whole.model.vocabulary
    if takes_token_ids(part):
        return whole_numbers(vocabulary or 0, batch_size, *shape, kind="Int32", first=1)
    return numbers(batch_size, *shape)


def built(layer: LayerLines) -> list[str]:
    """Return the statements that make a layer and set its parameters."""
    source = layer.source
    lines = []
    if source.build:
        build = Call("to_T", (source.build,)) if source.parameters else source.build
        lines.append(build.assigned_to(layer.name))
    return lines + [f"{layer.name}.{p.path} .= {p.value}" for p in source.parameters.values()]


def _loss(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    loss, targets = loss_source(model)
    return Timed(
        definitions=[],
        step=[
            "step(outputs, targets) =",
            f"    Flux.withgradient(outputs -> {loss}(outputs, targets), outputs)",
        ],
        setup=[
            f"outputs = {numbers(batch_size, *model.output_shape)}",
            _labels(model, batch_size),
            f"targets = {targets}",
        ],
        call=[
            "seconds = [@elapsed step(outputs, targets) for _ = 1:WARM_UP+CALLS]",
            "value, (gradient,) = step(outputs, targets)",
        ],
        printed=[
            '@printf("loss: %.6g\\n", value)',
            '@printf("gradient of outputs: %.6g\\n", total(gradient))',
        ],
    )


def _labels(model: Model, batch_size: int) -> str:
    """Return the statement that makes a batch's labels: classes from 0, or numbers."""
    shape = (batch_size, *model.label_shape)
    if model.classes is None:
        return f"labels = 0.5 .* {numbers(*shape)}"
    return f"labels = {whole_numbers(model.classes, *shape)}"


def _optimizer(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    optimizer = model.optimizer
    counts = [(shape[::-1], n) for shape, n in trained_shapes(model).items()]
    shapes = [repr(shape) if n == 1 else f"fill({shape}, {n})..." for shape, n in counts]
    setup = [
        bracketed("shapes = [", shapes, "]"),
        f"parameters = [T({SCALE}) .* numbers(shape...) for shape in shapes]",
        f"gradients = [numbers(shape...; phase = {GRADIENT_PHASE}) for shape in shapes]",
        f"state = Flux.setup({optimizer_source(optimizer)}, parameters)",
    ]
    if isinstance(optimizer, models.AdamW) and optimizer.matrices_only:
        setup += [
            "for (leaf, parameter) in zip(state, parameters)",
            "    ndims(parameter) < 2 && Flux.adjust!(leaf; lambda = 0.0)",
            "end",
        ]
    return Timed(
        definitions=[schedule_source(optimizer)] if optimizer.schedule else [],
        step=[
            "function update!(state, parameters, gradients, step)",
            *indented(_update(optimizer)),
            "end",
        ],
        setup=setup,
        call=[
            "update!(state, parameters, gradients, 0)",
            "after_first = sum(total, parameters)",
            "seconds = [",
            "    @elapsed update!(state, parameters, gradients, i) for i = 1:WARM_UP+CALLS",
            "]",
        ],
        printed=['@printf("parameters after the first update: %.6g\\n", after_first)'],
    )


def _update(optimizer: Optimizer) -> list[str]:
    """Return the statements of an update: the schedule, the clipping and the rule."""
    lines = ["Flux.adjust!(state, rate(step))"] if optimizer.schedule else []
    if optimizer.clip_norm is not None:
        norm = code(optimizer.clip_norm)
        lines += [
            "norm = sqrt(sum(gradient -> sum(abs2, gradient), gradients))",
            f"norm > {norm} && (gradients = map(g -> T({norm} / norm) .* g, gradients))",
        ]
    return [*lines, "Flux.update!(state, parameters, gradients)", "return nothing"]


def activation_source(layer: models.Layer) -> str | None:
    """Return Flux's function for a layer that is an activation; None for another one."""
    match layer:
        case models.ReLU():
            return "relu"
        case models.GELU(tanh):
            return "gelu_tanh" if tanh else "gelu_erf"
    return None


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
                "bias": unless("true", _boolean(bias)),
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
            bias_option = unless("true", _boolean(bias))
            build = call("Dense", f"{features} => {width}", *activation, bias=bias_option)
            return LayerSource(build, parameters=own)
        case models.BatchNorm(epsilon, momentum):
            # Flux's momentum is the weight of the new value, the description's of the old one
            momentum_option = unless("0.1", code(1 - momentum))
            options = {"eps": unless(1e-5, epsilon), "momentum": momentum_option}
            build = call("BatchNorm", shape[0], *activation, **options)
            return LayerSource(build, parameters=own)
        case models.LayerNorm(epsilon, bias):
            # Flux adds the square of its eps to the variance
            eps = f"sqrt({code(epsilon)})"
            if bias:
                return LayerSource(call("LayerNorm", features, eps=eps), parameters=own)
            build = call("layer_norm", features, eps=eps)
            return LayerSource(build, parameters=own, definitions=(LAYER_NORM,))
        case models.RMSNorm(epsilon):
            build = call("RMSNorm", f"ones32({features})", _number(epsilon))
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
            options = {"nheads": heads, "bias": unless("false", _boolean(bias))}
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


def call(function: str, *arguments: Any, **options: Any) -> Call:
    """Return a call in Julia; text is source code, and an option that is None is left out."""
    positional = list(map(code, arguments))
    named = [f"{name} = {code(value)}" for name, value in options.items() if value is not None]
    if positional and named:  # a semicolon is before the first option
        return Call(function, (*positional[:-1], f"{positional[-1]}; {named[0]}", *named[1:]))
    return Call(function, (*positional, *named))


def code(value: Any) -> str:
    """Return the source code of a value: 1e-5, where Python writes 1e-05."""
    return python_code(value).replace("e-0", "e-")


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _number(value: float) -> str:
    return f"T({code(value)})"


def numbers(*shape: int, phase: int | None = None) -> str:
    """Return the call of the function that NUMBERS defines, for a canonical shape."""
    return str(call("numbers", *shape[::-1], phase=phase))


def whole_numbers(below: int, *shape: int, kind: str = "", first: int = 0) -> str:
    """Return token ids or classes that follow from their place."""
    one = f"{MULTIPLIER} * i % {below}{f' + {first}' if first else ''}"
    whole = f"{kind}[{one} for i = 0:{math.prod(shape) - 1}]"
    return whole if len(shape) == 1 else f"reshape({whole}, {', '.join(map(str, shape[::-1]))})"


NORM = {"weight": "diag.scale", "bias": "diag.bias"}
BATCH_NORM = {"weight": "γ", "bias": "β"}
ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
CELL = {"weight_ih": "Wi", "weight_hh": "Wh"}


def parameters(named: NamedLayer) -> dict[str, ParameterSource]:
    """Return the trained parameters of a layer, in Flux's form."""
    return {
        name: ParameterSource(_path(named, name), _value(named, parameter.shape))
        for name, parameter in named.layer.parameters(named.input_shape).items()
        if parameter.trained
    }


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


def _value(named: NamedLayer, shape: Shape) -> str:
    """Return the value of a parameter in Flux's form."""
    made = numbers(*shape)
    if is_flipped(named, shape):
        made = f"reverse({made}; dims = (1, 2))"
    elif is_transposed(named, shape):
        made += "'"
    return f"T({SCALE}) .* {made}"


def is_flipped(named: NamedLayer, shape: Shape) -> bool:
    """Return whether a parameter is a kernel: Flux convolves, the others cross-correlate."""
    return isinstance(named.layer, models.Conv) and len(shape) == 4


def is_transposed(named: NamedLayer, shape: Shape) -> bool:
    """Return whether a parameter is a matrix that Flux has the other way round."""
    return isinstance(named.layer, TRANSPOSED) and len(shape) == 2


TRANSPOSED = (models.Dense, models.MultiHeadAttention, models.LSTM, models.GRU)


def loss_source(model: Model, first: int = 0) -> tuple[str, str]:
    """Return a model's loss, and the expression of its targets in `labels`.

    first: the first class.
    """
    match model.loss:
        case models.SoftmaxCrossEntropy(smoothing):
            last = model.output_shape[-1] - 1 + first
            targets = f"Flux.onehotbatch(labels, {first}:{last})"
            if smoothing:
                targets = f"Flux.label_smoothing(T.({targets}), {_number(smoothing)})"
            return "Flux.logitcrossentropy", targets
        case models.BinaryCrossEntropy():
            return "Flux.logitbinarycrossentropy", "reshape(T.(labels), 1, :)"
        case models.MeanSquaredError():
            return "Flux.mse", "T.(labels)"
    raise unsupported("loss", model.loss, "Flux.jl")


def optimizer_source(optimizer: Optimizer) -> str:
    """Return the rule of an optimizer, without clipping and schedule."""
    rate = optimizer.learning_rate
    match optimizer:
        case models.SGD(_, momentum) if momentum:
            return str(call("Momentum", rate, momentum))
        case models.SGD():
            return str(call("Descent", rate))
        case models.Adam(_, beta1, beta2, epsilon):
            return str(call("Adam", rate, (beta1, beta2), epsilon))
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            return str(call("AdamW", rate, (beta1, beta2), decay, epsilon))
        case models.RMSprop(_, rho, epsilon):
            return str(call("RMSProp", rate, rho, epsilon))
        case models.Adadelta(_, rho, epsilon):  # it has no learning rate of its own
            chain = (call("AdaDelta", rho, epsilon), call("Descent", rate))
            return str(Call("OptimiserChain", chain))
    raise unsupported("optimizer", optimizer, "Flux.jl")


def schedule_source(optimizer: Optimizer) -> str:
    """Return the definition of the learning rate of a step, counted from 0."""
    peak = code(optimizer.learning_rate)
    match optimizer.schedule:
        case models.InverseTimeDecay(decay):
            return f"rate(step) = {peak} / (1 + {code(decay)} * step)"
        case models.WarmupCosine(warmup, steps, minimum):
            return WARMUP_COSINE.format(
                peak=peak, warmup=warmup, steps=steps, minimum=code(minimum)
            )
    raise unsupported("schedule", optimizer.schedule, "Flux.jl")


WARMUP_COSINE = '''
"""Rise linearly for {warmup} steps, and fall by a cosine to {minimum} of the rate."""
function rate(step)
    step < {warmup} && return {peak} * (step + 1) / ({warmup} + 1)
    part = min(1, (step - {warmup}) / ({steps} - {warmup}))
    return {peak} * ({minimum} + (1 - {minimum}) * (1 + cospi(part)) / 2)
end
'''
TO_SEQUENCE = """
to_sequence(x) = permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3))
"""
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
