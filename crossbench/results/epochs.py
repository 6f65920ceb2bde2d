"""Define the records of what was measured while an epoch ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from .number_types import (
    Count,
    Losses,
    NonNegative,
    Over0,
    Positive,
    Round,
    Seconds,
    Share,
)

Task = Literal["train", "predict"]
TRAIN: Task = "train"
PREDICT: Task = "predict"
TASKS: tuple[Task, ...] = (TRAIN, PREDICT)
"""What an epoch does: train on its batches, or predict the logits of each of them."""

SERIES_POINTS = 50
"""Points of a series of samples in the file; an epoch of a minute has 600 samples."""
Series = Annotated[list[NonNegative], Meta(max_length=SERIES_POINTS)]
Shares = Annotated[list[Share | None], Meta(max_length=SERIES_POINTS)]


@dataclass(frozen=True)
class SystemActivity:
    """Hold what the machine did during an epoch, all repetitions together; None where not known."""

    other_processes_cpu_seconds: NonNegative | None
    """CPU seconds of other processes on the CPUs that this one may use."""
    stolen_cpu_seconds: NonNegative | None
    """CPU seconds that the hypervisor of a virtual machine took from those CPUs."""
    throttled_seconds: NonNegative | None
    """Seconds that the control group's CPU quota throttled this process's threads."""
    thermal_throttle_events: Count | None
    """How often heat throttled those CPUs."""
    cpu_joules: NonNegative | None
    """Energy of the whole processor packages (RAPL), other processes included."""
    gpu_joules: NonNegative | None
    """Energy of the GPU (NVML)."""


@dataclass(frozen=True)
class Epoch:
    """Hold one timed epoch of the cell's task, or the first steps of one.

    Rounds count from 1, and each has a process of its own: its epoch 0 is cold and includes
    compilation, the others are steady. All but one of the rounds take the first batches only, where
    an epoch is long. On a GPU a steady epoch is repeated, on a CPU a short one; the seconds and
    figures are then the mean of the repetitions.
    """

    round: Round
    """Number of the round, from 1."""
    epoch: Count
    """0 for the first epoch of the process, with compilation; 1 and more for steady ones."""
    started: float
    """Seconds of a clock that all processes of the machine share; its zero is arbitrary."""
    wall_seconds: Annotated[float, Meta(ge=1e-9, le=1e9)]
    """Wall seconds of these steps; from the clock's resolution to thirty years."""
    cpu_seconds: Seconds
    """CPU seconds of all threads of the process."""
    losses: Annotated[Losses, Meta(min_length=1)]
    """Loss of each step, or of each predicted batch's logits; None where it was not finite."""
    figures: Annotated[dict[str, float], Meta(max_length=100)]
    """Figures that only the framework's runtime knows, by name with its unit: "GC s"."""
    system_activity: SystemActivity
    """What the machine did meanwhile."""
    repeats: Positive = 1
    """Number of timed repetitions."""
    untimed_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Seconds between the repetitions."""
    late_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """By how many seconds copying the weights to the CPU's memory took longer right after the clock
    stopped than once more (on a GPU: or than after such an epoch and a pause): the device still
    worked. The time in which the process waited for a CPU is left out."""
    still_training: bool = False
    """Whether the weights changed after the clock stopped."""
    system_cpu_seconds: NonNegative = 0.0
    """The part of cpu_seconds in which the operating system's kernel worked for the process, in
    page faults and other system calls."""
    page_faults: NonNegative = 0.0
    """Minor page faults: pages of memory that the kernel gave to the process, and cleared, when it
    first used them; of the machine's page_bytes, or more with huge pages."""

    @property
    def steps(self) -> int:
        """Return how many steps were timed: one for each loss."""
        return len(self.losses)

    @property
    def timed_seconds(self) -> float:
        """Return the wall seconds of all repetitions together."""
        return self.wall_seconds * self.repeats

    @property
    def span_seconds(self) -> float:
        """Return the seconds from the start of the first repetition to the end of the last."""
        return self.timed_seconds + self.untimed_seconds


@dataclass(frozen=True)
class Usage:
    """Hold what was sampled of a worker during a steady epoch; None where not known."""

    round: Positive
    """Round of the epoch."""
    samples: Positive
    """Number of samples."""
    sampler_cores: NonNegative
    """CPU seconds per second that the sampling itself took."""
    cores_peak: NonNegative | None
    """The most cores in use from one sample to the next."""
    resident_peak: Count
    """The most bytes of resident memory in a sample."""
    gpu_busy: Share | None
    """The mean utilization of the GPU: the share of time in which it worked (NVML). It and
    gpu_watts are None for less than a second of work, or if too much of the span was not timed."""
    gpu_memory_peak: Count | None
    """Bytes that the worker's process holds on the GPU (NVML)."""
    gpu_watts: NonNegative | None
    """The mean power of the whole GPU, in watts."""
    gpu_megahertz: NonNegative | None
    """The mean clock of the GPU's multiprocessors, in MHz."""
    gpu_megahertz_lowest: NonNegative | None
    """The lowest clock of the GPU's multiprocessors, in MHz."""
    gpu_throttled: list[str]
    """Why the GPU lowered its clock, in NVML's terms: "power cap", "thermal slowdown"."""
    stopped_seconds: NonNegative = 0.0
    """Seconds that the process was stopped: by a signal, or together with crossbench itself."""
    seconds: Series = field(default_factory=list)
    """Times of the series, from the start of the epoch; at most 50, evenly chosen."""
    cores: Series = field(default_factory=list)
    """Cores in use at these times, since the sample before."""
    gpu_shares: Shares = field(default_factory=list)
    """Utilization of the GPU at these times, as a share; empty without one."""


@dataclass(frozen=True)
class Latency:
    """Hold the seconds of predicting one batch and waiting for its logits, over the batches of
    epochs of their own.
    """

    round: Positive
    """Round of the epochs."""
    median_seconds: Over0
    """Median over the batches."""
    p99_seconds: Over0
    """99th percentile over the batches; of fewer than 100 batches the largest."""


@dataclass(frozen=True)
class Predictions:
    """Hold what the logits of the whole first epoch say, in a model of classes."""

    correct: Count
    """Examples whose largest logit is that of their label."""
    near_ties: Count
    """Examples whose predicted label rounding may decide: their two largest logits (for one logit,
    it and 0) are nearer than float32 tells apart."""


@dataclass(frozen=True)
class TargetEpoch:
    """Hold one epoch of the training to the target, and what the test examples gave after it."""

    wall_seconds: Over0
    """Wall seconds of its steps."""
    cpu_seconds: Annotated[float, Meta(ge=0)]
    """CPU seconds of all threads of the process."""
    reached: float | None
    """The accuracy, as a fraction, or the mean loss; None where the loss is not finite."""
    losses: Losses = field(default_factory=list)
    """Loss of each step; None where it was not finite."""
