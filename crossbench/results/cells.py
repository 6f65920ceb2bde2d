"""Define a cell, which is a framework's variant on a device, and all that was measured of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from ..inputs.names import IDIOMATIC, Compute, full_name
from .epochs import TRAIN, Epoch, Latency, Predictions, TargetEpoch, Task, Usage
from .machine import Peak
from .number_types import MAX_STEPS, Count, NonNegative, Positive, Share
from .parity import GradientParity, Parity, PrecisionParity
from .parts import PartResult
from .replay import Replay
from .untimed import UntimedCalls

MAX_CHOICES = 10
"""Different values of one choice that are kept."""
Choices = Annotated[list[str], Meta(max_length=MAX_CHOICES)]
Change = dict[str, list[float | None]]
"""Change of each parameter in an epoch, as a sketch: sums of its values with random signs."""


@dataclass(frozen=True)
class Cell:
    """Describe what a framework's variant does on one device, and why it cannot, if it cannot."""

    name: str
    """Name in the table's notes: "torch cpu". Unique in a comparison."""
    framework: str
    """Name that --frameworks takes, without the variant."""
    variant: str
    """Variant of the framework: "idiomatic", "tuned" and others."""
    title: str
    """The framework's name as its users write it."""
    device: Annotated[str, Meta(pattern=r"^(cpu|gpu(:[0-9]{1,4})?)\Z")]
    """Device as the user names it: "cpu", "gpu", or "gpu:1" for the second of several."""
    threads: Positive
    """CPU threads."""
    compute: Compute
    """What its matrix multiplications and convolutions are computed in."""
    task: Task
    """What an epoch does: train, or predict the logits of each batch from the initial weights."""
    batch_size: Positive
    """Examples per step."""
    named: bool
    """Whether the user named it: then it is a failure if it cannot run."""
    unavailable: str | None = None
    """Why it cannot run, in a line."""

    @property
    def group(self) -> Group:
        return Group(self.device, self.threads, self.compute, self.task, self.batch_size)

    @property
    def work(self) -> tuple[Task, int]:
        """Return the task and the batch size."""
        return self.task, self.batch_size

    @property
    def on_gpu(self) -> bool:
        return self.device_type == "gpu"

    @property
    def device_type(self) -> str:
        """Return "cpu" or "gpu"."""
        return device_type(self.device)

    @property
    def implementation(self) -> str:
        """Return the framework with its variant as --frameworks takes them: "torch:tuned"."""
        return full_name(self.framework, self.variant)

    @property
    def label(self) -> str:
        """Return the framework with its variant for a reader: "PyTorch tuned".

        A title that names the variant is not extended: "Keras (JAX)".
        """
        if self.variant == IDIOMATIC or self.variant in re.findall(r"\w+", self.title.lower()):
            return self.title
        return f"{self.title} {self.variant}"

    @property
    def gpu_index(self) -> int:
        """Return the GPU's index among the visible ones, from 0."""
        return int(self.device.partition(":")[2] or 0)


class Place(NamedTuple):
    """Identify the cells that differ in the framework and the batch size alone."""

    device: str
    threads: int
    compute: Compute
    task: Task


class Group(NamedTuple):
    """Identify the cells that are compared with each other: they differ in the framework alone."""

    device: str
    threads: int
    compute: Compute
    task: Task
    batch_size: int

    @property
    def place(self) -> Place:
        return Place(self.device, self.threads, self.compute, self.task)


def device_type(device: str) -> str:
    """Return "cpu" or "gpu" for "cpu", "gpu" or "gpu:1"."""
    return device.partition(":")[0]


def epoch_name(number: int) -> str:
    """Return what an epoch of a round is called, 0 being its first."""
    return f"epoch {number}" if number else "the first epoch"


@dataclass
class CellResult:
    """Hold all results of a cell, which is a row of the table."""

    cell: Cell
    """What was measured."""
    status: Literal["pending", "ran", "unavailable", "failed"] = "pending"
    """Whether it ran; pending until its last round is over."""
    reason: str | None = None
    """Why it is unavailable or failed, in a line."""
    traceback: str | None = None
    """What the failed worker process printed or raised."""
    parity: Parity | None = None
    """The proof that it does the same work; None where there was none."""
    precision: PrecisionParity | None = None
    """The proof of a cell that computes in another precision than float32; None for the others."""
    gradient: GradientParity | None = None
    """The proof of a whole batch's step; None where the losses of the first steps tell as much."""
    start_seconds: NonNegative | None = None
    """Wall seconds from the start of the first round's process to the data on the device."""
    epochs: list[Epoch] = field(default_factory=list)
    """Every timed epoch, in order."""
    test_accuracy: Share | None = None
    """Share of the test examples that are right after the whole epoch, or the last of several; None
    where an epoch predicts, or the model has no accuracy."""
    test_loss: float | None = None
    """Mean loss of the test examples then; None where an epoch predicts, or it is not finite."""
    predictions: Predictions | None = None
    """What the whole first epoch predicted; None for training, and where the model has no classes.
    """
    latencies: list[Latency] = field(default_factory=list)
    """One per round of prediction."""
    peak_memory: Positive | None = None
    """Bytes in an epoch: on a GPU the allocator's peak, on the CPU that of the resident memory.
    None where the allocator does not report it."""
    threads_reported: Positive | None = None
    """CPU threads that the framework itself reports."""
    cpus_allowed: Positive | None = None
    """CPUs on which any of the process's threads may run, read while it trained."""
    source_code: str = ""
    """What the adapter wrote and ran: model, loss, optimizer and, but in Julia, step; empty where
    it wrote none, or in an older file."""
    details: dict[str, str] = field(default_factory=dict)
    """Versions, BLAS, names of devices."""
    choices: dict[str, Choices] = field(default_factory=dict)
    """What the variant chose while it ran, by name; several values where the rounds differ."""
    usage: list[Usage] = field(default_factory=list)
    """Samples of each steady epoch that was long enough."""
    allocated: Count | None = None
    """Bytes that an epoch allocates on the device in total, if trace_memory is set."""
    peak: Peak | None = None
    """What the framework reaches on the device without a model."""
    peak_problem: str | None = None
    """Why the peak could not be measured, in a line."""
    extra_problem: str | None = None
    """What failed after the rounds: the training to the target, or the tracing of memory."""
    undropped_losses: list[float | None] = field(default_factory=list)
    """Losses of the first steps with dropouts of the rate 0; empty for models without dropouts."""
    loss_drift: Annotated[list[NonNegative | None], Meta(max_length=MAX_STEPS)] = field(
        default_factory=list
    )
    """Relative change of the loss of each step where the weights that an epoch starts from are
    perturbed; None where it is not finite. Empty for models with dropouts."""
    change_drift: NonNegative = 0.0
    """How far the change of the weights in that epoch moves then, relative to it."""
    changes: dict[Positive, Change] = field(default_factory=dict)
    """Change of each parameter in the first steady epoch of a round, by the steps of that epoch:
    sums of its values with random signs."""
    other_changes: dict[Count, dict[Positive, Change]] = field(default_factory=dict)
    """The same in the other whole epochs, by epoch: 0 for the first of a round."""
    replays: list[Replay] = field(default_factory=list)
    """At most one per round: a timed epoch that was run again in pieces."""
    untimed: dict[str, UntimedCalls] = field(default_factory=dict)
    """What calls take that are in no epoch's seconds, by the method's name: the shortest round."""
    to_target: Annotated[list[TargetEpoch], Meta(max_length=10_000)] = field(default_factory=list)
    """The epochs from the initial weights until the target or the time limit."""
    parts: dict[str, PartResult] = field(default_factory=dict)
    """What each part of a training step takes, by its name, if `layers` is set."""

    @property
    def name(self) -> str:
        return self.cell.name

    @property
    def cold(self) -> list[Epoch]:
        """Return the first epoch of each round."""
        return [epoch for epoch in self.epochs if epoch.epoch == 0]

    @property
    def first_losses(self) -> list[float | None]:
        """Return the loss of each step of the longest first epoch; empty without one."""
        return max((epoch.losses for epoch in self.cold), key=len, default=[])

    @property
    def steady(self) -> list[Epoch]:
        """Return the other epochs of all rounds."""
        return [epoch for epoch in self.epochs if epoch.epoch > 0]

    @property
    def changes_of_epochs(self) -> dict[tuple[int, int], Change]:
        """Return the changes of all epochs, by the epoch and its steps."""
        of_epochs = {**self.other_changes, 1: self.changes}
        return {
            (epoch, steps): change
            for epoch in sorted(of_epochs)
            for steps, change in of_epochs[epoch].items()
        }

    @property
    def longest_losses(self) -> dict[str, list[float | None]]:
        """Return the losses of the longest round by the name of their epoch, with those on the way
        to the target.

        Steady epochs of training go on from one another, and are one sequence; so are the epochs to
        the target.
        """
        rounds: dict[int, list[Epoch]] = {}
        for epoch in self.epochs:
            rounds.setdefault(epoch.round, []).append(epoch)
        longest = max(rounds.values(), key=lambda epochs: sum(e.steps for e in epochs), default=[])
        found = self.sequences(longest)
        if self.to_target:
            to_target = [loss for epoch in self.to_target for loss in epoch.losses]
            found["the training to the target"] = to_target
        return found

    def sequences(self, epochs: Iterable[Epoch]) -> dict[str, list[float | None]]:
        """Return the losses of a round's epochs, by the name of the epoch that each begins with."""
        found: dict[str, list[float | None]] = {}
        for epoch in epochs:
            goes_on = epoch.epoch > 1 and self.cell.task == TRAIN
            name = epoch_name(1 if goes_on else epoch.epoch)
            found[name] = found.get(name, []) + epoch.losses
        return found

    def has_round(self, number: int) -> bool:
        return any(epoch.round == number for epoch in self.epochs)
