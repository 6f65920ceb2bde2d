"""Writes programs that time a part of a training step.

Holds what those in any language share, and the program in Python. A part is what one piece of work
takes longer than another. Each piece has a program of its own, whose model, loss and optimizer are
written as a row's.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..inputs.names import IDIOMATIC
from ..models import GivenGradient, Model
from ..models.parameters import Shape
from ..models.parts import LOSS, OPTIMIZER, Part, Work
from .statements import indented
from .training_programs import PythonProgram, Training, assigned, python_program, wrapped

WARM_UP, CALLS = 3, 10


@dataclass(frozen=True, kw_only=True)
class PartTraining(Training):
    """Says what the program of a piece of work does: it times calls with one batch.

    trains: whether a call is a whole step; else the loss and the gradients alone. what: names the
    work, without the framework. subtracted: the sentence on the part's other program, if any.
    """

    trains: bool
    what: str
    subtracted: str

    @property
    def sizes(self) -> dict[str, int]:
        return {"BATCH_SIZE": self.batch_size, "WARM_UP": WARM_UP, "CALLS": CALLS}


def part_training(
    part: Part, work: Work, model: Model, batch_size: int, threads: int
) -> PartTraining:
    """Return what the program of one of a part's two pieces of work does."""
    size = work.examples or batch_size
    return PartTraining(
        model=work.model,
        variant=IDIOMATIC,
        device="cpu",
        threads=threads,
        batch_size=size,
        batches=1,
        test_examples=0,
        seed=0,
        data=None,
        weights="",
        examples="",
        trains=work.trains,
        what=_what(part, work, model),
        subtracted=_subtracted(part, work),
    )


def _what(part: Part, work: Work, model: Model) -> str:
    """Return what a program times, without the framework."""
    if part.name == OPTIMIZER:
        return f"{'a training step' if work.trains else 'the gradients'} of {model.name}"
    name = _name(part)
    if work is not part.whole:
        return f"the layers before {name} of {model.name}"
    equal = f" (one of {part.count} equal layers)" if part.count > 1 else ""
    behind = ", with the layers before it" if part.before else ""
    return f"{name}{equal} of {model.name}{behind}"


def _name(part: Part) -> str:
    return "the loss" if part.name == LOSS else part.name.replace(", ", " and ")


def _subtracted(part: Part, work: Work) -> str:
    """Return the sentence on the other program of a part, if it has two."""
    if part.before is None:
        return ""
    name = "the optimizer" if part.name == OPTIMIZER else _name(part)
    other = "without" if work is part.whole else "with"
    return f"What {name} adds is the difference to the program {other} it."


def summary(training: PartTraining, title: str, *notes: str) -> str:
    """Return the lines that say what a program does, without quotes."""
    passes = "a whole step" if training.trains else "forward and backward pass"
    says = [
        f"A call is {'' if training.trains else 'the '}{passes} of a batch of "
        f"{training.batch_size:,} random examples, from the framework's own initial weights. "
        f"Prints the median time of {CALLS} calls. {training.subtracted}".strip(),
        *notes,
    ]
    return wrapped(f"Time {training.what}, in {title} on the CPU.", says)


def batch_shape(shape: Shape, channels_last: bool) -> str:
    """Return the expression of the shape of a batch of examples, pictures with channels last."""
    own = (*shape[1:], shape[0]) if channels_last and len(shape) == 3 else shape
    return f"({', '.join(['BATCH_SIZE', *map(str, own)])})" if own else "BATCH_SIZE"


def python_examples(model: Model, channels_last: bool) -> list[str]:
    """Return the statements that draw the `inputs` and the `labels` of a batch."""

    def drawn(shape: Shape, below: int | None, kind: str) -> str:
        given = batch_shape(shape, channels_last)
        if below is None:
            return f"rng.random({given}, np.float32) - 0.5"
        return f"rng.integers(0, {below}, {given}{kind})"

    is_given = isinstance(model.loss, GivenGradient)
    return [
        "rng = np.random.default_rng(0)",
        f"inputs = {drawn(model.input_shape, model.vocabulary, ', np.int32')}",
        *["# the gradient of the outputs"] * is_given,
        f"labels = {drawn(model.label_shape, model.classes, '')}",
    ]


def python_part_program(
    training: PartTraining,
    program: PythonProgram,
    placed: str,
    version: str,
    channels_last: bool = False,
) -> str:
    """Return the program of a piece of work.

    program: its `epoch` is a call. placed: the statement that brings `inputs` and `labels` to the
    device. version: the framework's name and version, in an f-string.
    """
    examples = python_examples(training.model, channels_last)
    loop = [
        "seconds = []",
        "for _ in range(WARM_UP + CALLS):",
        *indented(["start = time.perf_counter()", *program.epoch]),
        "    seconds.append(time.perf_counter() - start)",
    ]
    return python_program(
        summary(training, program.title, *program.notes),
        ["import time"],
        program,
        constants=[assigned(training.sizes)],
        model=[*program.model, *examples, placed],
        end=[loop, [f'print(f"{{1000 * np.median(seconds[WARM_UP:]):.3f}} ms, {version}")']],
    )
