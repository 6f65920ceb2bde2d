"""Writes source code: what the adapters' programs share, and what is the same in any language.

An adapter's source.py says how its framework's users write each layer, loss and optimizer, and puts
these lines into a program.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .models import Dropout, Model, NamedLayer
from .models.parameters import Shape
from .models.parts import LOSS, OPTIMIZER, Part

WIDTH = 88
"""Characters of a line of Python: ruff's and Black's default."""
MAX_NESTED = 70
"""Characters of a statement in which a layer's output may be the next one's argument."""
SCALE = 0.1
"""Factor of the weights: neither a sigmoid nor a softmax is saturated by them."""
GRADIENT_PHASE = 1
"""Phase of the output's gradient: a norm's input would have none if it were equal to the output."""
WARM_UP, CALLS = 3, 10
MULTIPLIER = 7919
"""A prime: the i-th token id, or class, is i times it, modulo the number of ids or classes."""


@dataclass(frozen=True)
class Call:
    """Holds the call of a function or a class; its arguments are source code, or calls."""

    function: str
    arguments: tuple[str | Call, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"

    def assigned_to(self, name: str) -> str:
        """Return the statement that gives the result a name."""
        return bracketed(f"{name} = {self.function}(", self.arguments, ")")


def call(function: str, *arguments: Any, **options: Any) -> Call:
    """Return a call in Python; text is source code, and an option that is None is left out."""
    given = {name: value for name, value in options.items() if value is not None}
    named = (f"{name}={code(value)}" for name, value in given.items())
    positional = (value if isinstance(value, Call) else code(value) for value in arguments)
    return Call(function, (*positional, *named))


def code(value: Any) -> str:
    """Return the source code of a value; text is source code already."""
    if isinstance(value, float):
        return repr(float(f"{value:.12g}"))  # 1 - 0.99 is 0.01
    return value if isinstance(value, str) else repr(value)


def unless(default: Any, value: Any) -> Any:
    """Return the value of an option, or, where it is the framework's default, None."""
    return None if value == default else value


def unsupported(kind: str, found: Any, title: str) -> NotImplementedError:
    """Return the error for a layer, loss, optimizer or schedule that no program is written for."""
    return NotImplementedError(f"unsupported {kind} for a program in {title}: {found}")


def one_or_both(pair: tuple[int, int]) -> int | tuple[int, int]:
    """Return a pair of equal numbers as one number."""
    return pair[0] if pair[0] == pair[1] else pair


def bracketed(start: str, items: Iterable[str | Call], end: str, room: int = WIDTH) -> str:
    """Return a statement with a list in brackets, broken into lines as Black does.

    room: characters of a line, without the indentation.
    """
    items = list(items)
    joined = ", ".join(map(str, items))
    if len(f"{start}{joined}{end}") <= room:
        return f"{start}{joined}{end}"
    if end.startswith(")") and 4 + len(joined) <= room:
        return f"{start}\n    {joined}\n{end}"
    lines = [
        bracketed(f"{item.function}(", item.arguments, "),", room - 4)
        if isinstance(item, Call)
        else f"{item},"
        for item in items
    ]
    return "\n".join([start, *indented(lines), end])


def indented(lines: Iterable[str]) -> list[str]:
    """Return the lines of a function's or a loop's body."""
    return [f"    {line}" if line else "" for text in lines for line in text.split("\n")]


@dataclass(frozen=True)
class ParameterSource:
    """Says where a layer holds a parameter, and the value that a program gives it.

    path: the attribute of the layer, or of its gradient. index: of the parameter's rows, where the
    attribute has more than these.
    """

    path: str
    value: str
    index: str = ""


@dataclass(frozen=True)
class LayerSource:
    """Says how a framework's users write a layer.

    build: makes it; None where it needs no object. output: the expression of its output, in which
    {layer} is its name and {x} its input. parameters: the trained ones, by canonical name, without
    the layer's. definitions: the classes and functions that are named. settings: statements on the
    object that is built. changes: whether a pass changes the object.
    """

    build: Call | None
    output: str = "{layer}({x})"
    parameters: Mapping[str, ParameterSource] = field(default_factory=dict)
    definitions: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    changes: bool = False


@dataclass(frozen=True)
class LayerLines:
    """Holds the source code of one layer in a program."""

    named: NamedLayer
    source: LayerSource

    @property
    def name(self) -> str:
        """Return the name of the variable that holds the layer."""
        return self.named.name.replace("multiheadattention", "attention")

    def output(self, x: str) -> str:
        """Return the expression of the output."""
        return self.source.output.format(layer=self.name, x=x)


def output_lines(layers: Sequence[LayerLines], last: str) -> list[str]:
    """Return the statements that compute the output of layers from x. last: begins the last one."""
    *before, end = layers
    if len(before) == 1:
        nested = f"{last}{end.output(before[0].output('x'))}"
        if len(nested) <= MAX_NESTED:
            return [nested]
    lines, x = [], "x"
    for layer in before:
        lines.append(f"hidden = {layer.output(x)}")
        x = "hidden"
    return [*lines, f"{last}{end.output(x)}"]


def values(*shape: int, scale: float | None = None, phase: int | None = None) -> str:
    """Return Python's call of the function that VALUES defines, times a scale."""
    made = str(call("values", *shape, phase=phase))
    return made if scale is None else f"{scale} * {made}"


def whole_numbers(below: int, *shape: int, dtype: str = "int64") -> str:
    """Return NumPy's expression of token ids or classes that follow from their place."""
    numbers = f"np.arange({math.prod(shape)}) * {MULTIPLIER} % {below}"
    if len(shape) > 1:
        numbers = f"({numbers}).reshape{tuple(shape)}"
    elif dtype != "int64":
        numbers = f"({numbers})"
    return numbers if dtype == "int64" else f'{numbers}.astype("{dtype}")'


def batch_values(*shape: int, phase: int | None = None, channels_last: bool = True) -> str:
    """Return the call of `values` for a batch, by default pictures with their channels last."""
    is_moved = channels_last and len(shape) == 4
    return values(*shape, phase=phase) + (".transpose(0, 2, 3, 1)" if is_moved else "")


def batch_inputs(part: Part, batch_size: int, channels_last: bool = True) -> str:
    """Return NumPy's expression of the input of a part: numbers, or token ids."""
    shape, vocabulary = part.layers[0].input_shape, part.whole.model.vocabulary
    if takes_token_ids(part):
        return whole_numbers(vocabulary or 0, batch_size, *shape, dtype="int32")
    return batch_values(batch_size, *shape, channels_last=channels_last)


def takes_token_ids(part: Part) -> bool:
    return part.before is None and part.whole.model.vocabulary is not None


def labels(model: Model, batch_size: int) -> str:
    """Return NumPy's expression of a batch's labels: classes, or numbers that `values` makes."""
    shape = (batch_size, *model.label_shape)
    return whole_numbers(model.classes, *shape) if model.classes else values(*shape, scale=0.5)


def trained_shapes(model: Model) -> Counter[Shape]:
    """Return how often each shape of a trained parameter is there."""
    return Counter(p.shape for p in model.parameters.values() if p.trained)


def shapes_statement(model: Model) -> str:
    """Return Python's statement that makes SHAPES, those of the trained parameters."""
    counts = trained_shapes(model).items()
    items = [repr(shape) if n == 1 else f"*{n} * [{shape}]" for shape, n in counts]
    return bracketed("SHAPES = [", items, "]")


def is_random(part: Part) -> bool:
    """Return whether what the part computes differs from call to call, by a dropout's mask."""
    return any(isinstance(named.layer, Dropout) for named in part.layers)


def gradients(
    part: Part, layers: Sequence[LayerLines], of_parameter: str, of_input: str
) -> dict[str, str]:
    """Return the expressions of the gradients that a program of layers prints, by name.

    of_parameter: {layer}, {path} and {index} stand for its source. of_input: for a part that is not
    the first one. A dropout has none: they differ from call to call.
    """
    if is_random(part):
        return {}
    found = {
        name: of_parameter.format(layer=layer.name, path=p.path, index=p.index)
        for layer in layers
        for name, p in layer.source.parameters.items()
    }
    return found | ({"input": of_input} if part.before else {})


def outputs(part: Part, total: str, zeros: str) -> dict[str, str]:
    """Return the expression of a number for the output that a program of layers prints, by name.

    total: the sum of its absolute values. zeros: the share of zeros, for a dropout.
    """
    if not is_random(part):
        return {"output": total}
    is_last = isinstance(part.layers[-1].layer, Dropout)
    return {"share of zeros in the output": zeros} if is_last else {}


def heading(part: Part, model: Model, title: str, batch_size: int, *notes: str) -> str:
    """Return the comment at the top of a part's program: what it computes, and what it prints."""
    lines = [f"{_work(part, model, title, batch_size)}.", _printed(part), *notes]
    wrapped = (text for line in lines for text in textwrap.wrap(line, WIDTH - len("# ")))
    return "\n".join(f"# {text}" for text in wrapped)


def _work(part: Part, model: Model, title: str, batch_size: int) -> str:
    if part.name == OPTIMIZER:
        return f"The optimizer of {model.name} in {title}: an update of all parameters"
    if part.name == LOSS:
        return f"The loss of {model.name} in {title}: value and gradient, batch of {batch_size}"
    names = part.name.replace(", ", " and ")
    equal = f" (one of {part.count} equal layers)" if part.count > 1 else ""
    return f"{names}{equal} of {model.name} in {title}: forward and backward, batch of {batch_size}"


def _printed(part: Part) -> str:
    if is_random(part):
        return "Prints the median time on the CPU; no sums, because the dropout mask is random."
    return "Prints the median time on the CPU, and sums of absolute values to compare frameworks."


VALUES = """
def values(*shape, phase=0):  # the same numbers in any language
    {body}
"""
"""Makes numbers that are the same in any language, as good as random, and hardly ever equal."""
ARRAY = "np.sin(np.arange(np.prod(shape)) ** 2 + phase).reshape(shape).astype(DTYPE)"


@dataclass(frozen=True)
class Timed:
    """Says what a program in Python times, and what it prints.

    definitions: classes and functions. setup: statements before the first call. reset: those before
    each call, and call: those that are timed. numbers: expressions by name. gradients: those of
    arrays by name, or, where the call makes a list `gradients` of them, the names in its order.
    """

    setup: Sequence[str]
    call: Sequence[str]
    numbers: Mapping[str, str]
    gradients: Mapping[str, str] | Sequence[str] = ()
    definitions: Sequence[str] = ()
    reset: Sequence[str] = ()


def python_program(
    comment: str,
    imports: str,
    values: Sequence[str],
    timed: Timed,
    version: str,
    total: str,
    **constants: Any,
) -> str:
    """Return a program that makes numbers by a formula, times a call with them, and prints sums.

    values: the body of the function of this name, which returns ARRAY as the framework takes it.
    version: the framework's name and version, in an f-string. total: the sum of the absolute values
    of {array}. constants: further ones.
    """
    constants = {"DTYPE": '"float32"', **constants, "WARM_UP": WARM_UP, "CALLS": CALLS}
    texts = map(str, constants.values())
    loop = [
        "seconds = []",
        "for _ in range(WARM_UP + CALLS):",
        *indented([*timed.reset, "start = time.perf_counter()", *timed.call]),
        "    seconds.append(time.perf_counter() - start)",
    ]
    printed = [f'print(f"{{1000 * np.median(seconds[WARM_UP:]):.3f}} ms, {version}")']
    printed += [f'print(f"{name}: {{{number}:.6g}}")' for name, number in timed.numbers.items()]
    if timed.gradients:
        pairs = "gradients.items()"
        if isinstance(timed.gradients, Mapping):
            items = [f'"{name}": {expression}' for name, expression in timed.gradients.items()]
            printed.append(bracketed("gradients = {", items, "}"))
        else:
            names = [f'"{name}"' for name in timed.gradients]
            pairs = f"zip([{', '.join(names)}], gradients)"
            if len(pairs) > WIDTH - len("for name, gradient in :"):
                printed.append(bracketed("names = [", names, "]"))
                pairs = "zip(names, gradients)"
        printed += [
            f"for name, gradient in {pairs}:",
            f'    print(f"gradient of {{name}}: {{{total.format(array="gradient")}:.6g}}")',
        ]
    blocks = [
        f"{comment}\n{imports.strip()}",
        f"{', '.join(constants)} = {', '.join(texts)}",
        VALUES.format(body="\n    ".join(values)),
        *timed.definitions,
        "\n".join(timed.setup),
        "\n".join(loop),
        "\n".join(printed),
    ]
    return join_blocks(block.strip() for block in blocks)


def join_blocks(blocks: Iterable[str]) -> str:
    """Return the blocks of a Python program, with two lines around functions and classes."""
    text, was_definition = "", False
    for block in blocks:
        is_definition = block.startswith(("def ", "class ", "@"))
        if text:
            text += "\n\n\n" if is_definition or was_definition else "\n\n"
        text, was_definition = text + block, is_definition
    return f"{text}\n"
