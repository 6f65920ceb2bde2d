"""Writes programs that time a part of a training step: what those in any language share, and the
program in Python.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..models import Dropout, Model
from ..models.parameters import Shape
from ..models.parts import LOSS, OPTIMIZER, Part
from .layers import LayerLines
from .statements import WIDTH, bracketed, call, indented, join_blocks

SCALE = 0.1
"""Factor of the weights: neither a sigmoid nor a softmax is saturated by them."""
GRADIENT_PHASE = 1
"""Phase of the output's gradient: a norm's input would have none if it were equal to the output."""
WARM_UP, CALLS = 3, 10
MULTIPLIER = 7919
"""A prime: the i-th token id, or class, is i times it, modulo the number of ids or classes."""


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
