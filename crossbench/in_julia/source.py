"""Write source code in Julia: numbers, parameters, rules of Optimisers.jl, schedules and imports.

Needs no Julia, whose first axis is the one that runs fastest: the axes are the canonical ones,
reversed. How each framework writes its layers and losses is in its adapter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from .. import models
from ..models.layers.convolutions import Window
from ..models.model import Model, NamedLayer, Weights
from ..models.parameters import Shape
from ..models.training import Optimizer
from ..source.statements import (
    Call,
    code as python_code,
    indented,
    one_or_both,
    unless,
    unsupported,
)

ACTIVATIONS: Mapping[models.Layer, str] = MappingProxyType(
    {
        models.GELU(): "gelu_erf",
        models.GELU(tanh=True): "gelu_tanh",
        models.HardSwish(): "hardswish",
        models.ReLU(): "relu",
        models.ReLU6(): "relu6",
        models.Sigmoid(): "sigmoid",
        models.SiLU(): "swish",
        models.Softplus(): "softplus",
        models.Tanh(): "tanh",
    }
)
"""Functions of NNlib, or of Julia, for activations that have no number or parameter."""
LINE = 92
"""Characters of a line of Julia, as JuliaFormatter's default style has it."""
TITLE = "Julia"
"""Names the language in messages on what no framework in it has."""


def call(function: str, *arguments: Any, **options: Any) -> Call:
    """Return a call in Julia; text is source code, and an option that is None is left out."""
    positional = [item if isinstance(item, Call) else code(item) for item in arguments]
    named = [f"{name} = {code(value)}" for name, value in options.items() if value is not None]
    if positional and named:  # a semicolon is before the first option
        return Call(function, (*positional[:-1], f"{positional[-1]}; {named[0]}", *named[1:]))
    return Call(function, (*positional, *named))


def pool(layer: models.Pool, shape: Shape) -> Call:
    """Return how a pool is written; the width is first."""
    sizes, strides = layer.sizes[::-1], layer.strides[::-1]
    made = call(
        "MaxPool" if layer.is_max else "MeanPool",
        sizes,
        stride=None if strides == sizes else one_or_both(strides),
        pad=unless(0, one_or_both(layer.paddings[::-1])),
    )
    return features_first(made, shape)


def features_first(made: Call, shape: Shape) -> Call:
    """Return a layer that takes (L, F, N) as one that takes sequences, (F, L, N); any other one
    itself. shape: of its input.
    """
    return Call("Chain", ("swap_features", made, "swap_features")) if len(shape) == 2 else made


def shared_layer(named: NamedLayer, activation: Sequence[str], bias: str) -> str | Call | None:
    """Return a layer that all frameworks in Julia write alike, the item of a Chain; else None.

    activation: the function that the layer applies itself, if any. bias: the option without which
    it has one.
    """
    shape = named.input_shape
    match named.layer:
        case models.Convolution():
            return convolution(named.layer, shape, activation, bias)
        case models.Dense(width, has_bias):
            given = {bias: unless(True, has_bias)}
            return call("Dense", f"{shape[-1]} => {width}", *activation, **given)
        case models.Pool():
            return pool(named.layer, shape)
        case models.Upsample(factor, mode):
            return call("Upsample" if mode == "nearest" else "bilinear", factor)
        case models.Pad(mode=mode):
            return call("padded", f"pad_{mode}", pads(named.layer.windows))
        case layer if layer in ACTIVATIONS:
            return f"elementwise({ACTIVATIONS[layer]})"
        case models.LeakyReLU(slope):
            return f"elementwise(leakyrelu, {number(slope)})"
        case models.Rescaling(scale, offset):
            return f"x -> {number(scale)} .* x .+ {number(offset)}"
        case models.ELU(alpha):
            return f"elementwise(elu, {number(alpha)})"
        case models.Dropout(rate):
            return call("Dropout", rate)
        case models.Transpose():
            return "swap_features"
        case models.ToSequence():
            return "to_sequence"
        case models.FirstOfSequence():
            return "first_of_sequence"
        case models.GlobalAveragePool() if len(shape) == 2:
            return "sequence_mean"
        case models.GlobalMaxPool() if len(shape) == 2:
            return "sequence_max"
    return None


def convolution(
    layer: models.Convolution, shape: Shape, activation: Sequence[str], bias: str
) -> Call:
    """Return how a convolution is written, the width first. shape: of its input."""
    is_transposed = isinstance(layer, models.TransposedConv)
    given = {
        "stride": unless(1, one_or_both(layer.strides[::-1])),
        "pad": unless(0, one_or_both(pads(layer.windows))),
        "dilation": unless(1, one_or_both(layer.dilations[::-1])),
        "groups": unless(1, layer.groups),
        bias: unless(True, layer.bias),
    }
    if isinstance(layer, models.TransposedConv):
        given["outpad"] = unless(0, one_or_both(layer.output_padding[::-1]))
    kind = "ConvTranspose" if is_transposed else "Conv"
    channels = f"{layer.channels(shape)} => {layer.features}"
    made = call(kind, layer.kernel_size[::-1], channels, *activation, **given)
    return features_first(made, shape)


def pads(windows: Sequence[Window]) -> tuple[int, ...]:
    """Return the padding of each side, the last axis' first."""
    return tuple(pad for window in reversed(windows) for pad in (window.before, window.after))


def code(value: Any) -> str:
    """Return the source code of a value: 1e-5 and true, where Python writes 1e-05 and True."""
    return (
        str(value).lower() if isinstance(value, bool) else python_code(value).replace("e-0", "e-")
    )


def number(value: float) -> str:
    """Return the expression of a number of the program's type."""
    return f"T({code(value)})"


def julia_string(text: str) -> str:
    """Return the source code of a string."""
    for special in '\\"$':
        text = text.replace(special, f"\\{special}")
    return f'"{text}"'


def beside(name: str) -> str:
    """Return the expression of the path of a file beside the program."""
    return f"joinpath(@__DIR__, {julia_string(name)})"


def written(start: str, item: str | Call, end: str = "", room: int = LINE) -> str:
    """Return a statement, broken into lines as JuliaFormatter does: each argument on its own."""
    line = f"{start}{item}{end}"
    if len(line) <= room or isinstance(item, str):
        return line
    arguments = indented(written("", argument, ",", room - 4) for argument in item.arguments)
    return "\n".join([f"{start}{item.function}(", *arguments, f"){end}"])


STANDARD = {
    "LinearAlgebra": ("BLAS", "dot"),
    "Printf": ("@printf", "@sprintf"),
    "Random": ("Random", "Xoshiro"),
    "Statistics": ("mean", "median"),
}
"""Modules of Julia's standard library, and what programs take from each."""


@dataclass(frozen=True)
class Imports:
    """Names what a framework's programs import besides the standard library.

    packages: those imported whole, the framework's first. modules: the others, with the names that
    programs take from each. on_gpu: packages that a GPU needs too.
    """

    packages: tuple[str, ...]
    modules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    on_gpu: tuple[str, ...] = ()

    def statements(self, text: str) -> list[str]:
        """Return the statements that import what a program uses."""
        lines = [f"using {', '.join(self.packages)}"]
        for module, names in sorted((STANDARD | dict(self.modules)).items()):
            if used := [name for name in names if uses(text, name)]:
                lines.append(f"using {module}: {', '.join(used)}")
        return [f"using {', '.join(self.on_gpu)}", *lines] if self.on_gpu else lines

    def installed(self, text: str) -> str:
        """Return "A is", or "A, B and C are", for the packages that a program uses."""
        packages = list(self.packages)
        for module, names in self.modules.items():
            is_used = any(uses(text, name) for name in names)
            packages += [module] if is_used and module not in packages else []
        *before, last = [*packages, *self.on_gpu]
        return f"{', '.join(before)} and {last} are" if before else f"{last} is"


def uses(text: str, name: str) -> bool:
    """Return whether a program names a function, or what a module of this name has."""
    return re.search(rf"(?<![\w.]){re.escape(name)}[.(,;)]", text) is not None


def convolves(model: Model) -> bool:
    """Return whether convolutions do most of the model's work."""
    flops = sum(
        named.layer.forward_flops(named.input_shape)
        for named in model.all_layers()
        if isinstance(named.layer, models.Convolution)
    )
    return 2 * flops > model.forward_flops


def grouped_attention(
    named: NamedLayer,
    layer: models.MultiHeadAttention,
    function: str,
    rotary: str,
    norm: str | None,
    **bias: Any,
) -> Call:
    """Return how an attention with later options is made.

    function, rotary: those that make it and its rotary embedding. norm: the expression of the norm
    of a head. bias: the option of the projections.
    """
    (length, features), width = named.input_shape, layer.width(named.input_shape)
    mask, rotated = None, None
    if layer.causal or layer.window:
        mask = str(call("attention_mask", length, causal=layer.causal, window=layer.window))
    if layer.rotary:
        rotate = "rotate_neighbours" if layer.rotary.interleaved else "rotate_halves"
        rotated = str(call(rotary, "T", rotate, width, length, layer.rotary.base))
    heads = f"{layer.heads} => {layer.key_heads}"
    return call(
        function,
        *(features, heads, width),
        **bias,
        output_bias=unless(layer.bias, layer.has_output_bias),
        query_norm=norm,
        key_norm=norm,
        rotary=rotated,
        mask=mask,
    )


SAME, FLIPPED, TRANSPOSED = "same", "flipped", "transposed"
"""What is done to a canonical array: nothing; a kernel is flipped, since NNlib convolves, where
others cross-correlate; Julia's frameworks have a matrix the other way round."""
MULTIPLYING = (models.Dense, models.MultiHeadAttention, models.LSTM, models.GRU)


@dataclass(frozen=True)
class Place:
    """Says which parameter or running statistic an array of a model in Julia is.

    full_name: the canonical one; "" for an array that is no parameter: it stays zero, or the layer
    has made it. change: from the canonical axes, which are in reversed order in Julia.
    """

    full_name: str
    shape: Shape
    change: str = SAME
    is_trained: bool = True

    def array(self, weights: Weights) -> np.ndarray:
        """Return the array that a program reads."""
        if not self.full_name:
            return np.zeros(self.shape, np.float32)
        array = weights[self.full_name]
        if self.change == FLIPPED:
            return np.flip(array, tuple(range(2, array.ndim)))
        return array.T if self.change == TRANSPOSED else array


def place(named: NamedLayer, name: str) -> Place:
    """Return the place of a layer's parameter, by its name in the layer."""
    parameter = named.layer.parameters(named.input_shape)[name]
    full_name, shape, change = f"{named.name}.{name}", parameter.shape, SAME
    if isinstance(named.layer, models.Convolution) and len(shape) > 2:
        change = FLIPPED
    elif isinstance(named.layer, MULTIPLYING) and len(shape) == 2:
        change = TRANSPOSED
    return Place(full_name, shape, change, parameter.trained)


def tables(named: NamedLayer) -> list[Place]:
    """Return the places of arrays that a layer makes of the numbers of its places."""
    length, *_ = named.input_shape
    match named.layer:
        case models.SinusoidalPositions():
            return [Place("", named.input_shape, is_trained=False)]
        case models.MultiHeadAttention(rotary=models.Rotary()) as layer:
            return 2 * [Place("", (length, layer.width(named.input_shape) // 2), is_trained=False)]
    return []


@dataclass(frozen=True)
class LossSource:
    """Says how a framework's users write a loss of (outputs, targets).

    function: its name, none where the labels are the gradient of the outputs. targets: the
    expression of the targets in `labels`. made: the expression of the function, where the framework
    has not got it.
    """

    function: str
    targets: str
    made: str = ""


def class_range(model: Model, first: int) -> str:
    """Return the classes of a model as a range. first: the first class."""
    return f"{first}:{(model.classes or 0) - 1 + first}"


def optimizer_source(optimizer: Optimizer) -> Call:
    """Return the rule of an optimizer, without clipping and schedule."""
    rate = optimizer.learning_rate
    match optimizer:
        case models.SGD(weight_decay=decay):
            return chained(call("WeightDecay", decay) if decay else None, *_sgd_rules(optimizer))
        case models.Adam(_, beta1, beta2, epsilon):
            return call("Adam", rate, (beta1, beta2), epsilon)
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            return call("AdamW", rate, (beta1, beta2), decay, epsilon)
        case models.Lion(_, beta1, beta2, decay):
            # Optimisers' Lion has betas of another formula, and its learning rate before a decay
            decayed = call("WeightDecay", decay) if decay else None
            return chained(call("LionSign", (beta1, beta2)), decayed, call("Descent", rate))
        case models.RMSprop(_, rho, epsilon):
            return call("RMSProp", rate, rho, epsilon)
        case models.Adadelta(_, rho, epsilon):  # it has no learning rate of its own
            return chained(call("AdaDelta", rho, epsilon), call("Descent", rate))
        case models.Adagrad(_, initial, epsilon):  # Optimisers' begins with epsilon
            return chained(call("RootOfSum", initial, epsilon), call("Descent", rate))
    raise unsupported("optimizer", optimizer, TITLE)


def _sgd_rules(optimizer: models.SGD) -> list[Call]:
    """Return the rules without the weight decay.

    In Optimisers' momentum the learning rate is a part of the velocity, which is another formula
    where it changes.
    """
    rate, momentum = optimizer.learning_rate, optimizer.momentum
    if not momentum:
        return [call("Descent", rate)]
    if optimizer.schedule:
        return [call("Velocity", momentum, optimizer.nesterov), call("Descent", rate)]
    return [call("Nesterov" if optimizer.nesterov else "Momentum", rate, momentum)]


def chained(*rules: Call | None) -> Call:
    """Return the rules that there are, one after the other."""
    found = [rule for rule in rules if rule]
    return found[0] if len(found) == 1 else Call("OptimiserChain", tuple(found))


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
        case models.Cosine(steps, minimum):
            return COSINE.format(peak=peak, steps=steps, minimum=code(minimum))
        case models.Steps(milestones, gamma):
            passed = f"count(<=(step), {code(list(milestones))})"
            return f"rate(step) = {peak} * {code(gamma)}^{passed}"
        case models.OneCycle(warmup, steps, start, end, linear):
            way = "part" if linear else "(1 - cospi(part)) / 2"
            ends = {"start": code(start), "end": code(end)}
            return ONE_CYCLE.format(peak=peak, warmup=warmup, steps=steps, way=way, **ends)
    raise unsupported("schedule", optimizer.schedule, TITLE)


def has_no_decay(optimizer: Optimizer) -> bool:
    """Return whether an optimizer decays some parameters, and others not."""
    return isinstance(optimizer, models.Decaying) and optimizer.matrices_only


WARMUP_COSINE = '''
"""Rise linearly for {warmup} steps, and fall by a cosine to {minimum} of the rate."""
function rate(step)
    step < {warmup} && return {peak} * (step + 1) / ({warmup} + 1)
    part = min(1, (step - {warmup}) / ({steps} - {warmup}))
    return {peak} * ({minimum} + (1 - {minimum}) * (1 + cospi(part)) / 2)
end
'''
COSINE = '''
"""Fall by a cosine to {minimum} of the rate in {steps} steps."""
function rate(step)
    return {peak} * ({minimum} + (1 - {minimum}) * (1 + cospi(min(1, step / {steps}))) / 2)
end
'''
ONE_CYCLE = '''
"""Rise from {start} of the rate in {warmup} steps, and fall to {end} of it in step {steps}."""
function rate(step)
    if step < {warmup}
        part = step / {warmup}
        return {peak} * ({start} + (1 - {start}) * {way})
    end
    part = min(1, (step - {warmup}) / ({steps} - {warmup}))
    return {peak} * (1 - (1 - {end}) * {way})
end
'''
