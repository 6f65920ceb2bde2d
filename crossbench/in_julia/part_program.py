"""Write the program, in Julia, of a part of a training step. Needs no Julia.

How a framework writes layers and losses, and differentiates them, is in its adapter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from .. import models
from ..models.model import Model
from ..models.parts import LOSS, OPTIMIZER, Part
from ..models.training import Optimizer
from ..source.layers import LayerLines
from ..source.part_programs import (
    CALLS,
    GRADIENT_PHASE,
    SCALE,
    WARM_UP,
    gradients,
    heading,
    outputs,
    takes_token_ids,
    trained_shapes,
)
from ..source.statements import bracketed, indented
from .source import (
    NUMBERS,
    Imports,
    LossSource,
    blas_threads,
    code,
    has_no_decay,
    numbers,
    optimizer_source,
    schedule_source,
    whole_numbers,
)


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


class PartDialect(ABC):
    """Says how a framework in Julia writes what is its own in the program of a part."""

    title: ClassVar[str]
    package: ClassVar[str]
    """The framework's package, whose version a program prints."""
    autodiff: ClassVar[str]
    """The module whose withgradient differentiates a loss."""
    optimisers: ClassVar[str]
    """The module whose setup, adjust! and update! the framework's users call."""

    @abstractmethod
    def imports(self, text: str) -> Imports:
        """Return what the program with these statements imports."""

    @abstractmethod
    def layers(self, part: Part, batch_size: int) -> Timed:
        """Return what the program of layers times: a forward pass and its backward pass."""

    @abstractmethod
    def loss(self, model: Model) -> LossSource:
        """Return a model's loss."""


def part_program(
    dialect: PartDialect, part: Part, model: Model, batch_size: int, threads: int
) -> str:
    """Return the program of a part of a training step."""
    timed = _timed(dialect, part, batch_size)
    constants = [f"const T, WARM_UP, CALLS = Float32, {WARM_UP}, {CALLS}"]
    if any("to_T(" in line for line in timed.setup):
        constants.append("const to_T = T == Float64 ? f64 : f32")
    blocks = [
        constants,
        [NUMBERS.strip()],
        *([definition.strip()] for definition in timed.definitions),
        timed.step,
        [_blas_threads(part, threads), *timed.setup],
        timed.call,
        [PRINT_TIME.format(package=dialect.package), *timed.printed],
    ]
    text = "\n\n".join("\n".join(block) for block in blocks)
    needed = dialect.imports(text)
    start = f"Start it by `julia --threads {threads}`, where {needed.installed(text)} installed."
    comment = heading(part, model, dialect.title, batch_size, start)
    return "\n".join([comment, *needed.statements(text), "", text, ""])


PRINT_TIME = (
    '@printf("%.3f ms, {package} %s\\n", 1000 * median(seconds[WARM_UP+1:end]), '
    "pkgversion({package}))"
)


def _blas_threads(part: Part, threads: int) -> str:
    return blas_threads(threads, any(isinstance(n.layer, models.Conv) for n in part.layers))


def _timed(dialect: PartDialect, part: Part, batch_size: int) -> Timed:
    if part.name == LOSS:
        return _loss(dialect, part, batch_size)
    if part.name == OPTIMIZER:
        return _optimizer(dialect, part)
    return dialect.layers(part, batch_size)


def printed_sums(part: Part, layers: list[LayerLines], of_parameter: str) -> list[str]:
    """Return the statements that print the sums of the output and of the gradients.

    of_parameter: the expression of a parameter's gradient, in which {path} stands for its fields.
    """
    numbers = outputs(part, "total(output)", zeros="mean(output .== 0)")
    lines = [f'@printf("{name}: %.6g\\n", {number})' for name, number in numbers.items()]
    found = gradients(part, layers, of_parameter, of_input="x_gradient")
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


def part_input(part: Part, batch_size: int) -> str:
    """Return the input of a part; token ids count from 1."""
    shape, vocabulary = part.layers[0].input_shape, part.whole.model.vocabulary
    if takes_token_ids(part):
        return whole_numbers(vocabulary or 0, batch_size, *shape, kind="Int32", first=1)
    return numbers(batch_size, *shape)


def output_gradient(part: Part, batch_size: int) -> str:
    """Return the gradient of a part's output."""
    return numbers(batch_size, *part.layers[-1].output_shape, phase=GRADIENT_PHASE)


def _loss(dialect: PartDialect, part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    loss = dialect.loss(model)
    value = f"{loss.function}(outputs, targets)"
    return Timed(
        definitions=[loss.definition] if loss.definition else [],
        step=[
            "step(outputs, targets) =",
            f"    {dialect.autodiff}.withgradient(outputs -> {value}, outputs)",
        ],
        setup=[
            f"outputs = {numbers(batch_size, *model.output_shape)}",
            _labels(model, batch_size),
            f"targets = {loss.targets}",
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


def _optimizer(dialect: PartDialect, part: Part) -> Timed:
    model, module = part.whole.model, dialect.optimisers
    optimizer = model.optimizer
    counts = [(shape[::-1], n) for shape, n in trained_shapes(model).items()]
    shapes = [repr(shape) if n == 1 else f"fill({shape}, {n})..." for shape, n in counts]
    setup = [
        bracketed("shapes = [", shapes, "]"),
        f"parameters = [T({SCALE}) .* numbers(shape...) for shape in shapes]",
        f"gradients = [numbers(shape...; phase = {GRADIENT_PHASE}) for shape in shapes]",
        f"state = {module}.setup({optimizer_source(optimizer)}, parameters)",
    ]
    if has_no_decay(optimizer):
        setup += [
            "for (leaf, parameter) in zip(state, parameters)",
            f"    ndims(parameter) < 2 && {module}.adjust!(leaf; lambda = 0.0)",
            "end",
        ]
    return Timed(
        definitions=[schedule_source(optimizer)] if optimizer.schedule else [],
        step=[
            "function update!(state, parameters, gradients, step)",
            *indented(_update(optimizer, module)),
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


def _update(optimizer: Optimizer, module: str) -> list[str]:
    """Return the statements of an update: the schedule, the clipping and the rule."""
    lines = [f"{module}.adjust!(state, rate(step))"] if optimizer.schedule else []
    if optimizer.clip_norm is not None:
        norm = code(optimizer.clip_norm)
        lines += [
            "norm = sqrt(sum(gradient -> sum(abs2, gradient), gradients))",
            f"norm > {norm} && (gradients = map(g -> T({norm} / norm) .* g, gradients))",
        ]
    return [*lines, f"{module}.update!(state, parameters, gradients)", "return nothing"]
