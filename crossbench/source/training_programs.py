"""Writes programs that train a whole model: what they do, and what those in Python share."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..inputs.names import FLOAT32, IDIOMATIC, Compute
from ..models import BinaryCrossEntropy, Branches, Dropout, Model, NamedLayer
from ..models.layers.layer import channels
from .statements import WIDTH, call, indented, join_blocks

EPOCHS = 2
"""Epochs of a program: the first, which may compile, and a steady one."""
SHOWN = 4
"""Losses that a program prints of the first steps of an epoch."""


@dataclass(frozen=True)
class Training:
    """Says what a training program does: the work of a row.

    model: for the data's vocabulary. device: "cpu" or "gpu". batches: steps per epoch, of the first
    examples. test_examples: those that are predicted at the end. seed: of the examples. data: the
    folder of CIFAR-10's binary version; None where the examples are in a file beside the program.
    weights: name of the file with the initial weights. examples: that of the file with examples.
    compute: see `Job.compute`.
    """

    model: Model
    variant: str
    device: str
    threads: int
    batch_size: int
    batches: int
    test_examples: int
    seed: int
    data: str | None
    weights: str
    examples: str
    compute: Compute = FLOAT32

    @property
    def is_augmented(self) -> bool:
        """Return whether each epoch has other examples, which are made batch by batch."""
        return self.model.data.augmentation is not None

    @property
    def sizes(self) -> dict[str, int]:
        """Return the numbers that a program has a name for."""
        sizes = {"BATCH_SIZE": self.batch_size, "BATCHES": self.batches}
        return sizes | ({"TEST": self.test_examples} if self.model.has_accuracy else {})

    @property
    def has_dropout(self) -> bool:
        return any(isinstance(named.layer, Dropout) for named in self.model.all_layers())


@dataclass(frozen=True)
class Block:
    """Holds layers that follow one another several times, each time equal."""

    layers: tuple[NamedLayer, ...]
    repeated: tuple[tuple[NamedLayer, ...], ...]

    @property
    def count(self) -> int:
        return 1 + len(self.repeated)

    @property
    def width(self) -> int:
        """Return the number of features of the output."""
        return channels(self.layers[0].output_shape)


def grouped(
    layers: Sequence[NamedLayer], activations: Mapping[str, str] | None = None
) -> Iterator[NamedLayer | Block]:
    """Yield the layers in order, those that repeat as one: equal groups that begin with branches,
    each from inputs of the same shape.

    activations: those that layers apply themselves, by the layer's name; `layers` has none of them.
    """
    applied = activations or {}
    kinds = [(named.layer, named.input_shape, applied.get(named.name)) for named in layers]
    start = 0
    while start < len(layers):
        size, count = _repetition(kinds[start:])
        if count == 1:
            yield layers[start]
            start += 1
            continue
        groups = [tuple(layers[start + n * size :][:size]) for n in range(count)]
        yield Block(groups[0], tuple(groups[1:]))
        start += count * size


def _repetition(kinds: Sequence[tuple[Any, ...]]) -> tuple[int, int]:
    """Return the size and the number of the equal groups that the layers begin with."""
    for size in range(1, len(kinds) // 2 + 1) if isinstance(kinds[0][0], Branches) else ():
        count = 1
        while kinds[count * size :][:size] == kinds[:size]:
            count += 1
        if count > 1:
            return size, count
    return 1, 1


def shared_blocks(
    functions: Mapping[str, tuple[str, int]], lines: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return functions that make blocks, and the lines that call them, with one function for those
    that differ in their width alone.

    functions: by name the source code, which begins with a definition of no arguments, and the
    block's width.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for name, (text, width) in functions.items():
        found[re.sub(rf"\b{width}\b", "features", text.replace(name, "block"))].append(name)
    texts = []
    for template, names in found.items():
        if len(names) == 1:
            texts.append(functions[names[0]][0])
            continue
        texts.append(template.replace("block()", f"{names[0]}(features)", 1))
        for name in names:
            call = f"{names[0]}({functions[name][1]})"
            lines = [re.sub(rf"\b{name}\(\)", call, line) for line in lines]
    return texts, list(lines)


def docstring(training: Training, title: str, *notes: str) -> str:
    """Return the lines that say what a program does, without quotes."""
    model = training.model
    where = "the GPU" if training.device == "gpu" else "the CPU"
    variant = "" if training.variant == IDIOMATIC else f", variant {training.variant}"
    compute = "" if training.compute == FLOAT32 else f", in {training.compute}"
    first = f"Train {model.name} in {title} on {where}{variant}{compute}."
    says = [
        f"{_sentence(model.source)} An epoch has {training.batches:,} batches of "
        f"{training.batch_size:,}. Prints the seconds of each epoch and its losses, the first "
        f"{SHOWN} and the last.",
        *notes,
    ]
    return wrapped(first, says)


def wrapped(first: str, says: Iterable[str]) -> str:
    """Return the lines of a docstring: its first sentence, and what follows on that."""
    begin = textwrap.wrap(first, WIDTH - len('"""'))
    return "\n".join([*begin, "", *(t for line in says for t in textwrap.wrap(line, WIDTH))])


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


@dataclass(frozen=True)
class PythonData:
    """Holds the code that loads examples and cuts them into batches.

    functions: `load_data`, which yields the examples to train on and those to test on, each as
    inputs and labels; `batches`, which yields them batch by batch, and `augmented`, which yields
    those of an epoch. path: the expression of where the data is.
    """

    functions: Sequence[str]
    path: str


@dataclass(frozen=True)
class PythonProgram:
    """Holds what a framework says of its program in Python; statements are lines, or several.

    title: the framework's name. before_imports: statements that must come first. imports: of other
    packages. definitions: classes and functions. setup: after the arguments are parsed. model:
    statements that make the model, with its initial weights. epoch: those of an epoch, which find
    `losses`, a list of floats. evaluation: those after the last epoch, which find how many
    are `right`. functions: those that use the model.
    """

    title: str
    imports: Sequence[str]
    definitions: Sequence[str]
    setup: Sequence[str]
    model: Sequence[str]
    epoch: Sequence[str]
    evaluation: Sequence[str] = ()
    functions: Sequence[str] = ()
    notes: Sequence[str] = ()
    before_imports: Sequence[str] = ()


def python_training_program(training: Training, data: PythonData, program: PythonProgram) -> str:
    """Return the program that trains a model, formatted as Black does."""
    loop = [
        "for epoch in range(options.epochs):",
        *indented(["start = time.perf_counter()", *program.epoch, *REPORT]),
    ]
    has_accuracy = training.model.has_accuracy
    setup = [*arguments(training, data), *program.setup]
    return python_program(
        docstring(training, program.title, *program.notes),
        ["import argparse", "import time", "from pathlib import Path"],
        replace(program, setup=setup, definitions=[*program.definitions, *data.functions]),
        constants=constants(training),
        model=program.model,
        end=[loop, [*program.evaluation, PRINT_ACCURACY] if has_accuracy else []],
    )


def python_program(
    text: str,
    standard: Sequence[str],
    program: PythonProgram,
    constants: Sequence[str],
    model: Sequence[str],
    end: Sequence[Sequence[str]],
) -> str:
    """Return a program, formatted as Black does.

    text: of its docstring. standard: imports of the standard library. model: the statements before
    the functions. end: the blocks behind these.
    """
    own = sorted({"import numpy as np", *program.imports}, key=import_order)
    blocks = [
        f'"""{_escaped(text)}\n"""',
        "\n".join(program.before_imports),
        "\n".join(standard),
        "\n".join(line for line in own if line),
        "\n".join(constants),
        "\n".join(program.setup),
        *program.definitions,
        "\n".join(model),
        *program.functions,
        *map("\n".join, end),
    ]
    return join_blocks(block.strip() for block in blocks if block)


def _escaped(text: str) -> str:
    """Return a text as the literal of a docstring holds it."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def import_order(statement: str) -> tuple[bool, str]:
    """Return what sorts imports as ruff does."""
    return statement.startswith("from"), statement.lower()


def check_variant(training: Training, written: Iterable[str], framework: str, where: str) -> None:
    """Raise NotImplementedError for a variant that is not written as a program.

    where: the path of its code, in which {variant} stands for its name.
    """
    if training.variant not in written:
        path = where.format(variant=training.variant)
        raise NotImplementedError(f"the code of {framework}:{training.variant} is in {path}")


def prepared(training: Training) -> list[str]:
    """Return the statements that load the examples, and bring the batches that are the same in each
    epoch to the device.
    """
    made = "prepared = [to_device(batch) for batch in batches(*train, BATCHES * BATCH_SIZE)]"
    return ["train, test = load_data()", *([] if training.is_augmented else [made])]


def batches_of_epoch(training: Training) -> str:
    """Return the expression of the batches of an epoch, on the device."""
    return "map(to_device, augmented(*train, epoch))" if training.is_augmented else "prepared"


def predicted(model: Model, outputs: str) -> str:
    """Return the expression of the classes that outputs stand for."""
    is_binary = isinstance(model.loss, BinaryCrossEntropy)
    return f"({outputs}[:, 0] > 0)" if is_binary else f"{outputs}.argmax(1)"


def cpus_note(runtime: str, threads: int) -> str:
    """Return the sentence on a runtime whose threads no setting limits."""
    cpus = "0" if threads == 1 else f"0-{threads - 1}"
    return f"{runtime} uses all CPUs that the process may use: `taskset -c {cpus}` limits it."


def environment_note(variables: Mapping[str, str]) -> str:
    """Return the sentence of a docstring that says which environment a program needs."""
    given = " ".join(f"{name}={value}" for name, value in variables.items())
    return f"Set {given} before Python starts: the C library then keeps the memory that it frees."


REPORT = (
    "seconds = time.perf_counter() - start",
    f'shown = " ".join(f"{{loss:.8g}}" for loss in [*losses[:{SHOWN}], losses[-1]])',
    'print(f"epoch {epoch + 1}: {seconds:.4g} s, losses {shown}")',
)
PRINT_ACCURACY = 'print(f"accuracy: {right / TEST:.1%}")'


def assigned(values: Mapping[str, Any]) -> str:
    """Return the statement that gives values their names."""
    return f"{', '.join(values)} = {', '.join(map(str, values.values()))}"


def constants(training: Training) -> list[str]:
    """Return the statements that name the sizes of an epoch."""
    seed = [f"SEED = {training.seed}  # of the examples"] * training.is_augmented
    return [assigned(training.sizes), *seed]


def arguments(training: Training, data: PythonData) -> list[str]:
    """Return the statements that read the words of the command line."""
    add, weights = "parser.add_argument", f'Path(__file__).with_name("{training.weights}")'
    given = (
        call(add, '"--data"', type="Path", default=data.path),
        call(add, '"--initial"', default=weights),
        call(add, '"--epochs"', type="int", default=EPOCHS),
    )
    return [
        "parser = argparse.ArgumentParser(description=__doc__)",
        *(one.after("") for one in given),
        "options = parser.parse_args()",
    ]
