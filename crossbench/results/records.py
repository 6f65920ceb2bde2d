"""What a comparison leaves behind: plain values, enough to recompute every figure of the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

FLOAT64_BOUND = 1e-9
"""How far a tensor may be from the reference's in float64, as ‖a - b‖ / ‖b‖."""
FLOAT32_TIMES = 10.0
"""How many times as far as in the NumPy reference's own float32 a tensor may be from float64."""
FLOAT32_ROOM, LOSS_ROOM = 2e-5, 2e-6
"""How far it may be in any case, and a loss, which is a mean. bfloat16 and TensorFloat-32 are off
by more than 1e-4."""
FLOAT64_LEVEL = 1e-9
"""What is nearer to float64 than this in a float32 run was not computed in float32."""
KINDS = {"logits": "logits", "gradient of ": "gradients", "losses of the steps": "losses"}
"""How the names of what is computed begin, and what it is. The weights after the steps are not
among them: float32 may hold them exactly."""
FULL_FLOAT32_BOUND = 1e-5
"""How far one float32 convolution or matrix product may be from float64, as ‖a - b‖ / ‖b‖. With a
mantissa of 10 bits (TensorFloat-32) it is off by some 3e-4, which FLOAT32_BOUND cannot see."""


FIRST_EPOCH, STEADY_EPOCH, MASKED = "first epoch", "steady epoch", "given dropout masks"
"""Of which first steps the reference's losses are: of a round's first epoch, of its first steady
one, or, where the model has dropouts, of an epoch whose masks are given."""

# checked where a file is read
Positive = Annotated[int, Meta(gt=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Over0 = Annotated[float, Meta(gt=0)]
AtLeast0 = Annotated[float, Meta(ge=0, le=1e18)]
Share = Annotated[float, Meta(ge=0, le=1)]
Deviation = Annotated[float, Meta(ge=0)] | None
Deviations = Annotated[dict[str, Deviation], Meta(min_length=1)]


@dataclass(frozen=True)
class Parity:
    """How far each tensor was from the NumPy float64 reference's: ‖a - b‖ / ‖b‖ by name.

    Of a gradient that is nothing but rounding, ‖a - b‖ / ‖all gradients‖. A value that is not
    finite is kept as None.
    """

    float64: Deviations
    float32: Deviations
    reference_float32: Deviations
    """The same of the NumPy reference itself, run in float32."""
    full_float32: dict[str, float | None] = field(default_factory=dict)
    """Of one float32 convolution and one float32 matrix product, by name; empty on the CPU."""
    dropout: dict[str, float | None] = field(default_factory=dict)
    """Of the framework's own dropout masks, by what is counted: how far they are from what they
    should be, 1 for as far as is allowed; empty where the model has no dropout."""

    @property
    def agrees(self) -> bool:
        return self.disagreement is None

    @property
    def disagreement(self) -> str | None:
        """Where it differs and by how much, in a line, or None: float64 first, then float32."""
        return (
            _over("float64", self.float64, dict.fromkeys(self.float64, FLOAT64_BOUND))
            or self._reduced_precision
            or _over("float32", self.float32, {n: self.float32_bound(n) for n in self.float32})
            or self._float64_in_disguise
            or self._other_dropout
        )

    def float32_bound(self, name: str) -> float:
        """Return how far a tensor may be off in float32."""
        room = LOSS_ROOM if name.startswith("loss") else FLOAT32_ROOM
        return max(room, FLOAT32_TIMES * (self.reference_float32.get(name) or 0.0))

    @property
    def _float64_in_disguise(self) -> str | None:
        for start, kind in KINDS.items():
            found = [value for name, value in self.float32.items() if name.startswith(start)]
            if found and max(value or 0.0 for value in found) < FLOAT64_LEVEL:
                return f"the {kind} are computed in float64, not in float32"
        return None

    @property
    def _reduced_precision(self) -> str | None:
        """Return which float32 operation is less precise than float32, or None."""
        if not self.full_float32:
            return None
        name, value = worst(self.full_float32)
        if value is not None and value <= FULL_FLOAT32_BOUND:
            return None
        by = "is not finite" if value is None else f"is off by {value:.1e}"
        return (
            f"a float32 {name} {by} (at most {FULL_FLOAT32_BOUND:.0e} is allowed): "
            "it computes in TensorFloat-32 or a lower precision"
        )

    @property
    def _other_dropout(self) -> str | None:
        if not self.dropout:
            return None
        name, value = worst(self.dropout)
        if value is not None and value <= 1:
            return None
        by = "not finite" if value is None else f"off by {value:.1f} times what chance allows"
        return f"the dropout masks that it draws are wrong: {name} is {by}"


def _over(
    precision: str, deviations: dict[str, float | None], bounds: dict[str, float]
) -> str | None:
    """Return the tensor that is furthest over its bound, in a line, or None."""
    shares = {n: None if v is None else v / bounds[n] for n, v in deviations.items()}
    name, share = worst(shares)
    if share is not None and share <= 1:
        return None
    value = deviations[name]
    by = "is not finite" if value is None else f"differs by {value:.1e}"
    return f"{name} {by} in {precision} (at most {bounds[name]:.0e} is allowed)"


def worst(deviations: dict[str, float | None]) -> tuple[str, float | None]:
    """The largest deviation and the tensor it is at; one that is not finite is the largest."""
    return max(deviations.items(), key=lambda item: float("inf") if item[1] is None else item[1])


@dataclass(frozen=True)
class Surroundings:
    """What the machine did while an epoch ran, all its repetitions together; None where it does not
    tell.
    """

    others_cpu_seconds: AtLeast0 | None
    """Of other processes, on the CPUs that this one may use."""
    stolen_cpu_seconds: AtLeast0 | None
    """That a virtual machine's host took from those CPUs."""
    held_back_seconds: AtLeast0 | None
    """That a quota of the control group kept this process's threads waiting."""
    throttle_events: Count | None
    """Of those CPUs, for heat."""
    cpu_joules: AtLeast0 | None
    """Of the whole processor packages (RAPL), so of other processes too."""
    gpu_joules: AtLeast0 | None
    """Of the GPU (NVML)."""


@dataclass(frozen=True)
class Epoch:
    """One timed epoch. Rounds count from 1, and each has a process of its own: its epoch 0 is cold
    and holds compilation, the others are steady. On a GPU a steady epoch is repeated from the same
    weights; the seconds and figures are then the mean of the repetitions.
    """

    round: Positive
    epoch: Count
    started: float
    """Seconds of a clock that all processes of the machine share, from some moment."""
    wall_seconds: Over0
    cpu_seconds: Annotated[float, Meta(ge=0)]
    losses: list[float | None]
    """Of each step; None where it was not finite."""
    figures: dict[str, float]
    """What only the framework's runtime can tell, by name with its unit."""
    surroundings: Surroundings
    repeats: Positive = 1
    """How often it was trained and timed."""
    untimed_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Between the repetitions."""
    late_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """How much longer the weights took to come to the host right after the clock had stopped than
    once more: time that the device still worked."""
    still_training: bool = False
    """Whether the weights changed after the clock had stopped."""

    @property
    def timed_seconds(self) -> float:
        """Wall seconds of all repetitions together."""
        return self.wall_seconds * self.repeats

    @property
    def span_seconds(self) -> float:
        """From the start of the first repetition to the end of the last."""
        return self.timed_seconds + self.untimed_seconds


@dataclass(frozen=True)
class Usage:
    """What was seen of a worker from outside, during a steady epoch; None: not told."""

    round: Positive
    samples: Positive
    sampler_cores: AtLeast0
    """What the sampling itself took, in CPU seconds per second."""
    cores_peak: AtLeast0 | None
    """The most cores in use from one sample to the next."""
    resident_peak: Count
    """Bytes."""
    gpu_busy: Share | None
    """The mean share of the time in which the GPU worked (NVML's utilisation). It and gpu_watts are
    None for less than a second of work, or where too much of the span was not timed."""
    gpu_memory_peak: Count | None
    """Bytes that the worker's process holds on the GPU (NVML)."""
    gpu_watts: AtLeast0 | None
    """The mean power of the whole GPU."""
    gpu_megahertz: AtLeast0 | None
    """The mean clock of the GPU's multiprocessors."""
    gpu_megahertz_lowest: AtLeast0 | None
    """Its lowest clock."""
    gpu_throttled: list[str]
    """Why the GPU lowered its clock, in NVML's terms: "power cap", "thermal slowdown"."""
    stopped_seconds: AtLeast0 = 0.0
    """For how long the process was stopped: by a signal, or together with crossbench's own."""


@dataclass(frozen=True)
class Peak:
    """What a framework reaches on a device without a model: the roofline's two edges."""

    gflops: Over0
    """10^9 FLOPs per second of a large float32 matrix product."""
    copy_gigabytes: Over0
    """10^9 bytes per second of a large copy, read and written counted each."""


@dataclass(frozen=True)
class Trained:
    """One epoch on the way to the target accuracy, and the accuracy after it."""

    wall_seconds: Over0
    cpu_seconds: Annotated[float, Meta(ge=0)]
    accuracy: Share


@dataclass(frozen=True)
class Cell:
    """What was asked for: one framework on one device, and why it cannot run, if it cannot."""

    name: str
    """How the table's notes call it: "torch cpu". Unique in a comparison."""
    framework: str
    title: str
    device: Annotated[str, Meta(pattern=r"^(cpu|gpu(:[0-9]{1,4})?)\Z")]
    """As the user names it: "cpu", "gpu", or "gpu:1" for the second of several."""
    threads: Positive
    named: bool
    """Whether the user named it: then its absence is a failure."""
    unavailable: str | None = None

    @property
    def on_gpu(self) -> bool:
        return self.device_type == "gpu"

    @property
    def device_type(self) -> str:
        """Return "cpu" or "gpu"."""
        return self.device.partition(":")[0]

    @property
    def gpu_index(self) -> int:
        """Return the GPU's place among those that are visible, from 0."""
        return int(self.device.partition(":")[2] or 0)


@dataclass
class CellResult:
    """What became of a cell. reason: why it is unavailable or failed, in a line."""

    cell: Cell
    status: Literal["pending", "ran", "unavailable", "failed"] = "pending"
    reason: str | None = None
    traceback: str | None = None
    parity: Parity | None = None
    start_seconds: AtLeast0 | None = None
    """From the start of the first round's process to the data in place, wall."""
    epochs: list[Epoch] = field(default_factory=list)
    test_accuracy: Share | None = None
    """After the first round, as a fraction."""
    peak_memory: Positive | None = None
    """Bytes in training: on a GPU the allocator's figure, on the CPU the resident peak. None where
    the allocator does not tell."""
    threads_reported: Positive | None = None
    """What the framework itself says."""
    cpus_allowed: Positive | None = None
    """CPUs on which any of the process's threads may run, read while it trained."""
    details: dict[str, str] = field(default_factory=dict)
    usage: list[Usage] = field(default_factory=list)
    """Of each steady epoch that was long enough to be sampled."""
    allocated: Count | None = None
    """Bytes that an epoch allocates on the device, all in all, where it was asked for."""
    peak: Peak | None = None
    no_peak: str | None = None
    """Why the peak could not be measured, in a line."""
    masked_losses: list[float | None] = field(default_factory=list)
    """Of the first steps of an epoch whose dropout masks are given; empty without dropouts."""
    changes: dict[str, list[float | None]] = field(default_factory=dict)
    """What the first steady epoch changed in each parameter, by evidence.sketch."""
    to_accuracy: list[Trained] = field(default_factory=list)
    """The epochs from the initial weights until the target accuracy was reached, or given up."""

    @property
    def name(self) -> str:
        return self.cell.name

    @property
    def cold(self) -> list[Epoch]:
        """The first epoch of each round."""
        return [epoch for epoch in self.epochs if epoch.epoch == 0]

    @property
    def steady(self) -> list[Epoch]:
        """The other epochs of all rounds."""
        return [epoch for epoch in self.epochs if epoch.epoch > 0]

    def has_round(self, number: int) -> bool:
        return any(epoch.round == number for epoch in self.epochs)


@dataclass(frozen=True)
class Reference:
    """What the NumPy reference gives for the timed epochs."""

    first_losses: dict[str, list[float]]
    """Of the first steps of FIRST_EPOCH and STEADY_EPOCH, or of MASKED, in float64."""
    float32_losses: dict[str, list[float]]
    """The same in float32."""
    by_chance: list[str]
    """Parameters whose gradients are nothing but rounding, as that of a bias before a batch norm:
    what an epoch changes in them differs by chance."""

    @property
    def masked(self) -> bool:
        """Whether the model has dropouts, so that the timed losses differ by chance."""
        return MASKED in self.first_losses


@dataclass(frozen=True)
class Data:
    """Which data it was."""

    name: str
    sha256: str
    train_examples: Positive
    test_examples: Positive
    """Those that the accuracy is of."""
    batch_size: Positive
    batches: Positive
    """Of an epoch, whole ones: a rest is left over, and what lies behind them where it is cut."""
    cut: bool
    """Whether the data has more batches than an epoch takes."""
    note: str | None = None


@dataclass(frozen=True)
class Machine:
    """Where it ran. cpus: those that this process may use."""

    cpu: str
    cpus: Positive
    memory_bytes: Positive
    gpus: list[str]
    """Their names, of those that CUDA_VISIBLE_DEVICES shows, in its order."""
    gpu_problem: str | None
    """Why gpus is empty or NVML's figures are missing, in a line; None where there is no driver."""
    system: str
    python: str
    libraries: dict[str, str]


@dataclass(frozen=True)
class Settings:
    """What was asked for, as far as it is not in the model, the data and the cells."""

    model: str
    """As it was asked for: a name of the catalogue, or FILE.py:NAME."""
    rounds: Positive | None
    """None: until the ratios' intervals are narrower than precision, or max_seconds are used up."""
    precision: Over0
    max_seconds: Over0
    epochs: Positive
    """Steady ones of each round."""
    seed: Count
    timeout: Over0
    data: str
    """As it was asked for: auto, synthetic, or a directory."""
    baseline: str | None
    """The framework that the others are compared with; None for the fastest."""
    prices: dict[Annotated[str, Meta(pattern=r"^(cpu|gpu)\Z")], Over0]
    """Of an hour, by device."""
    target_accuracy: Annotated[float, Meta(gt=0, le=1)] | None
    """On the test examples, as a fraction; None to train for the epochs only."""
    trace_memory: bool
