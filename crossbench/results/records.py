"""Define the records of a comparison: plain values, from which all figures can be recomputed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from ..inputs.names import IDIOMATIC, full_name

FLOAT64_BOUND = 1e-9
"""The largest deviation of a tensor from the reference's in float64, ‖a - b‖ / ‖b‖."""
FLOAT32_FACTOR = 10.0
"""The largest deviation of a float32 tensor, as a multiple of that of the NumPy reference's own
float32."""
MIN_FLOAT32_BOUND, MIN_LOSS_BOUND = 2e-5, 2e-6
"""Deviations that are always allowed to a tensor, and to a loss, which is a mean. bfloat16 and
TensorFloat-32 deviate by more than 1e-4."""
MAX_CHOICES = 10
"""Different values of one choice that are kept."""
SERIES_POINTS = 50
"""Points of a series of samples in the file; an epoch of a minute has 600 samples."""
FLOAT64_LEVEL = 1e-9
"""A smaller deviation from float64 shows that a float32 run did not compute in float32."""
TENSOR_KINDS = {"logits": "logits", "gradient of ": "gradients", "losses of the steps": "losses"}
"""How the names of the computed tensors begin, and what they are called in messages. The weights
after the steps are not among them: float32 may hold them exactly."""
FULL_FLOAT32_BOUND = 1e-5
"""The largest deviation of a float32 convolution or matrix multiplication from float64.
It is ‖a - b‖ / ‖b‖. With a mantissa of 10 bits (TensorFloat-32) it is some 3e-4, which
float32_bound() may allow."""

Task = Literal["train", "predict"]
TRAIN: Task = "train"
PREDICT: Task = "predict"
TASKS: tuple[Task, ...] = (TRAIN, PREDICT)
"""What an epoch does: train on its batches, or predict the logits of each of them."""

FIRST_EPOCH, STEADY_EPOCH, MASKED = "first epoch", "steady epoch", "given dropout masks"
"""Names of the epochs whose first losses the reference computes: a round's first epoch, its first
steady one, or, to train models with dropouts, an epoch whose masks are given."""

# msgspec checks these bounds when it reads a file
Positive = Annotated[int, Meta(gt=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Over0 = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0, le=1e18)]
Share = Annotated[float, Meta(ge=0, le=1)]
Series = Annotated[list[NonNegative], Meta(max_length=SERIES_POINTS)]
Shares = Annotated[list[Share | None], Meta(max_length=SERIES_POINTS)]
Choices = Annotated[list[str], Meta(max_length=MAX_CHOICES)]
Deviation = Annotated[float, Meta(ge=0)] | None
Deviations = Annotated[dict[str, Deviation], Meta(min_length=1)]


@dataclass(frozen=True)
class Parity:
    """Hold the deviation of each tensor from the NumPy float64 reference's: ‖a - b‖ / ‖b‖ by name.

    For a gradient that is only rounding it is ‖a - b‖ / ‖all gradients‖. A value that is not finite
    is kept as None.
    """

    float64: Deviations
    float32: Deviations
    reference_float32: Deviations
    """Deviations of the NumPy reference itself, run in float32."""
    full_float32: dict[str, float | None] = field(default_factory=dict)
    """Deviations of one float32 convolution and one matrix multiplication; empty on the CPU."""
    dropout: dict[str, float | None] = field(default_factory=dict)
    """Errors of the dropout masks that the framework draws, by property of the masks; 1 is the
    largest error allowed. Empty where the model has no dropout."""

    @property
    def agrees(self) -> bool:
        """Return whether every deviation is within its bound."""
        return self.disagreement is None

    @property
    def disagreement(self) -> str | None:
        """Return where it differs and by how much, or None: float64 first, then float32."""
        return (
            _over("float64", self.float64, dict.fromkeys(self.float64, FLOAT64_BOUND))
            or self._reduced_precision
            or _over("float32", self.float32, {n: self.float32_bound(n) for n in self.float32})
            or self._float64_in_disguise
            or self._wrong_dropout
        )

    def float32_bound(self, name: str) -> float:
        """Return the largest deviation that a tensor may have in float32."""
        minimum = MIN_LOSS_BOUND if name.startswith("loss") else MIN_FLOAT32_BOUND
        return max(minimum, FLOAT32_FACTOR * (self.reference_float32.get(name) or 0.0))

    @property
    def _float64_in_disguise(self) -> str | None:
        """Return which tensors of the float32 run were computed in float64, or None."""
        for start, kind in TENSOR_KINDS.items():
            values = [value for name, value in self.float32.items() if name.startswith(start)]
            if values and max(value or 0.0 for value in values) < FLOAT64_LEVEL:
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
        verdict = "is not finite" if value is None else f"is off by {value:.1e}"
        return (
            f"a float32 {name} {verdict} (at most {FULL_FLOAT32_BOUND:.0e} is allowed): "
            "it computes in TensorFloat-32 or a lower precision"
        )

    @property
    def _wrong_dropout(self) -> str | None:
        """Return which property of the dropout masks is wrong, or None."""
        if not self.dropout:
            return None
        name, value = worst(self.dropout)
        if value is not None and value <= 1:
            return None
        verdict = "not finite" if value is None else f"off by {value:.1f} times what chance allows"
        return f"the dropout masks that it draws are wrong: {name} is {verdict}"


def _over(
    precision: str, deviations: dict[str, float | None], bounds: dict[str, float]
) -> str | None:
    """Return the tensor that exceeds its bound most, in a line, or None."""
    shares = {n: None if v is None else v / bounds[n] for n, v in deviations.items()}
    name, share = worst(shares)
    if share is not None and share <= 1:
        return None
    value = deviations[name]
    verdict = "is not finite" if value is None else f"differs by {value:.1e}"
    return f"{name} {verdict} in {precision} (at most {bounds[name]:.0e} is allowed)"


def worst(deviations: dict[str, float | None]) -> tuple[str, float | None]:
    """Return the tensor with the largest deviation, and that deviation; None is the largest."""
    return max(deviations.items(), key=lambda item: float("inf") if item[1] is None else item[1])


@dataclass(frozen=True)
class SystemActivity:
    """Hold what the machine did during an epoch, all repetitions together; None where not known."""

    other_processes_cpu_seconds: NonNegative | None
    """CPU seconds of other processes on the CPUs that this one may use."""
    stolen_cpu_seconds: NonNegative | None
    """CPU seconds that a virtual machine's host took from those CPUs."""
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

    round: Positive
    epoch: Count
    started: float
    """Seconds of a clock that all processes of the machine share; its zero is arbitrary."""
    wall_seconds: Over0
    cpu_seconds: Annotated[float, Meta(ge=0)]
    losses: list[float | None]
    """Loss of each step, or of each predicted batch's logits; None where it was not finite."""
    figures: dict[str, float]
    """Figures that only the framework's runtime knows, by name with its unit."""
    system_activity: SystemActivity
    repeats: Positive = 1
    """Number of timed repetitions."""
    untimed_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Seconds between the repetitions."""
    late_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """By how many seconds copying the weights to the host took longer right after the clock stopped
    than a second time: the time that the device still worked. The time in which the process had to
    wait for a CPU is left out."""
    still_training: bool = False
    """Whether the weights changed after the clock stopped."""
    system_cpu_seconds: NonNegative = 0.0
    """The part of cpu_seconds in which the kernel worked for the process, in page faults and other
    system calls."""
    page_faults: NonNegative = 0.0
    """Minor page faults: pages of memory that the kernel gave to the process, and cleared, when it
    first used them."""

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
    samples: Positive
    sampler_cores: NonNegative
    """CPU seconds per second that the sampling itself took."""
    cores_peak: NonNegative | None
    """The most cores in use from one sample to the next."""
    resident_peak: Count
    """Bytes of resident memory."""
    gpu_busy: Share | None
    """The mean utilization of the GPU: the share of time in which it worked (NVML). It and
    gpu_watts are None for less than a second of work, or if too much of the span was not timed."""
    gpu_memory_peak: Count | None
    """Bytes that the worker's process holds on the GPU (NVML)."""
    gpu_watts: NonNegative | None
    """The mean power of the whole GPU."""
    gpu_megahertz: NonNegative | None
    """The mean clock of the GPU's multiprocessors."""
    gpu_megahertz_lowest: NonNegative | None
    """The lowest clock of the GPU's multiprocessors."""
    gpu_throttled: list[str]
    """Why the GPU lowered its clock, in NVML's terms: "power cap", "thermal slowdown"."""
    stopped_seconds: NonNegative = 0.0
    """Seconds that the process was stopped: by a signal, or together with crossbench itself."""
    seconds: Series = field(default_factory=list)
    """Times of the series, from the start of the epoch; at most SERIES_POINTS, evenly chosen."""
    cores: Series = field(default_factory=list)
    """Cores in use at these times, since the sample before."""
    gpu_shares: Shares = field(default_factory=list)
    """Utilization of the GPU at these times; empty without one."""


@dataclass(frozen=True)
class Peak:
    """Hold what a framework reaches on a device without a model: the two limits of the roofline."""

    gflops: Over0
    """10^9 FLOPs per second of a large float32 matrix multiplication."""
    copy_gigabytes: Over0
    """10^9 bytes per second of a large copy, reads and writes both counted."""
    memory_gigabytes: Over0 | None = None
    """What the memory itself reaches: NumPy's copy on as many threads, or the bandwidth of the
    GPU's memory by its clock and bus; None where NVML does not tell."""

    def highest(self, other: Peak) -> Peak:
        """Return the higher value of each of the two."""
        memory = [p.memory_gigabytes for p in (self, other) if p.memory_gigabytes is not None]
        return Peak(
            max(self.gflops, other.gflops),
            max(self.copy_gigabytes, other.copy_gigabytes),
            max(memory, default=None),
        )


@dataclass(frozen=True)
class Latency:
    """Hold the seconds of predicting one batch and waiting for its logits, over the batches of an
    epoch of its own.
    """

    round: Positive
    median_seconds: Over0
    p99_seconds: Over0
    """99th percentile."""


@dataclass(frozen=True)
class Predictions:
    """Hold what the logits of the first steady epoch say, in a model of classes."""

    correct: Count
    """Examples whose largest logit is that of their label."""
    near_ties: Count
    """Examples whose predicted label rounding may decide: their two largest logits (for one logit,
    it and 0) are nearer than float32 tells apart."""


@dataclass(frozen=True)
class Target:
    """Say what the test examples must give for a training to be over."""

    what: Literal["accuracy", "loss"]
    value: float

    def met_by(self, reached: float | None) -> bool:
        """Return whether an accuracy is as large, or a loss as small."""
        if reached is None:
            return False
        return reached >= self.value if self.what == "accuracy" else reached <= self.value


@dataclass(frozen=True)
class TargetEpoch:
    """Hold one epoch of the training to the target, and what the test examples gave after it."""

    wall_seconds: Over0
    cpu_seconds: Annotated[float, Meta(ge=0)]
    reached: float | None
    """The accuracy, as a fraction, or the mean loss; None where the loss is not finite."""


def device_type(device: str) -> str:
    """Return "cpu" or "gpu" for "cpu", "gpu" or "gpu:1"."""
    return device.partition(":")[0]


class Group(NamedTuple):
    """Identify the cells that are compared with each other: they differ in the framework alone."""

    device: str
    threads: int
    task: Task
    batch_size: int


@dataclass(frozen=True)
class Cell:
    """Describe what a framework's variant does on one device, and why it cannot, if it cannot."""

    name: str
    """Name in the table's notes: "torch cpu". Unique in a comparison."""
    framework: str
    variant: str
    title: str
    """The framework's name as its users write it."""
    device: Annotated[str, Meta(pattern=r"^(cpu|gpu(:[0-9]{1,4})?)\Z")]
    """Device as the user names it: "cpu", "gpu", or "gpu:1" for the second of several."""
    threads: Positive
    task: Task
    batch_size: Positive
    named: bool
    """Whether the user named it: then it is a failure if it cannot run."""
    unavailable: str | None = None
    """Why it cannot run, in a line."""

    @property
    def group(self) -> Group:
        return Group(self.device, self.threads, self.task, self.batch_size)

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


@dataclass
class CellResult:
    """Hold all results of a cell. reason: why it is unavailable or failed, in a line."""

    cell: Cell
    status: Literal["pending", "ran", "unavailable", "failed"] = "pending"
    reason: str | None = None
    traceback: str | None = None
    parity: Parity | None = None
    start_seconds: NonNegative | None = None
    """Wall seconds from the start of the first round's process to the data on the device."""
    epochs: list[Epoch] = field(default_factory=list)
    test_accuracy: Share | None = None
    """Accuracy on the test examples after the whole epochs of training, as a fraction."""
    predictions: Predictions | None = None
    """What the whole steady epoch predicted; None for training, and where the model has no classes.
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
    details: dict[str, str] = field(default_factory=dict)
    choices: dict[str, Choices] = field(default_factory=dict)
    """What the variant chose while it ran, by name; several values where the rounds differ."""
    usage: list[Usage] = field(default_factory=list)
    """Samples of each steady epoch that was long enough."""
    allocated: Count | None = None
    """Bytes that an epoch allocates on the device in total, if trace_memory is set."""
    peak: Peak | None = None
    peak_problem: str | None = None
    """Why the peak could not be measured, in a line."""
    masked_losses: list[float | None] = field(default_factory=list)
    """Losses of the first steps with given dropout masks; empty for models without dropouts."""
    changes: dict[Positive, dict[str, list[float | None]]] = field(default_factory=dict)
    """Change of each parameter in the first steady epoch, from evidence.sketch, by the steps of
    that epoch."""
    to_target: list[TargetEpoch] = field(default_factory=list)
    """The epochs from the initial weights until the target or the time limit."""

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

    def has_round(self, number: int) -> bool:
        return any(epoch.round == number for epoch in self.epochs)


@dataclass(frozen=True)
class ReferenceLosses:
    """Hold the NumPy reference's losses of the first steps of a task with a batch size.

    By epoch: FIRST_EPOCH and STEADY_EPOCH, or MASKED.
    """

    task: Task
    batch_size: Positive
    float64: dict[str, list[float]]
    float32: dict[str, list[float]]


@dataclass(frozen=True)
class Reference:
    """Hold the NumPy reference's results for the timed epochs."""

    rounding_only: list[str]
    """Parameters whose gradients are only rounding, such as that of a bias before a batch norm:
    their change in an epoch differs by chance."""
    masked: bool
    """Whether the model has dropouts, so that the losses of training differ by chance."""
    losses: list[ReferenceLosses] = field(default_factory=list)
    """Computed when the first round was timed; empty before."""
    left_out: list[str] = field(default_factory=list)
    """What the proof has less of than the model, such as "7 of 27 layers"."""

    def losses_of(self, cell: Cell) -> ReferenceLosses | None:
        """Return the losses that the cell must have; None before they are computed."""
        return next((r for r in self.losses if (r.task, r.batch_size) == cell.work), None)


@dataclass(frozen=True)
class Data:
    """Describe the data of a run."""

    name: str
    sha256: str
    train_examples: Positive
    test_examples: Positive
    """Number of examples that the accuracy is measured on."""
    most_batches: Positive | None = None
    """Limit on the batches of an epoch; None for all."""
    most_examples: Positive | None = None
    """Limit on the examples of an epoch; None for all."""
    note: str | None = None

    def batches(self, batch_size: int) -> int:
        """Return the number of batches in an epoch, all full: the remaining examples are not used.

        0 where there are fewer examples than a batch has.
        """
        examples = min(self.train_examples, self.most_examples or self.train_examples)
        full = examples // batch_size
        return min(full, self.most_batches or full)

    def is_cut(self, batch_size: int) -> bool:
        """Return whether the data has more batches than an epoch takes."""
        return self.batches(batch_size) < self.train_examples // batch_size


@dataclass(frozen=True)
class Machine:
    """Describe the machine of a run. cpus: how many this process may use."""

    cpu: str
    cpus: Positive
    memory_bytes: Positive
    gpus: list[str]
    """Names of the GPUs that CUDA_VISIBLE_DEVICES shows, in its order."""
    gpu_problem: str | None
    """Why gpus is empty or NVML's figures are missing, in a line; None where there is no driver."""
    system: str
    python: str
    libraries: dict[str, str]
    label: str | None = None
    """Name that the user gave it."""
    page_bytes: Positive = 4096
    """Bytes of a page of memory."""
    allocator_settings: dict[str, str] = field(default_factory=dict)
    """Environment variables that set how memory is allocated, such as MALLOC_MMAP_MAX_."""

    @property
    def name(self) -> str:
        """Return the label, or the processor's name."""
        return self.label or self.cpu


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a run that are not in the model, the data and the cells."""

    model: str
    """Model as the user named it: a name of the catalogue, or FILE.py:NAME."""
    rounds: Positive | None
    """None: until the ratios' intervals are as precise as asked for, or max_seconds have passed."""
    precision: Over0 | None
    """The largest width of a ratio's interval, relative to the ratio; None: until it is decided who
    is faster."""
    max_seconds: Over0 | None
    """Limit for the rounds, and for the training to a target; None for the defaults of each."""
    epochs: Positive
    """Steady epochs per round."""
    seed: Count
    timeout: Over0
    data: str
    """Data as the user named it: auto, synthetic, or a directory."""
    baseline: str | None
    """The framework that the others are compared with; None for the fastest."""
    prices: dict[Annotated[str, Meta(pattern=r"^(cpu|gpu)\Z")], Over0]
    """Price of an hour, by device."""
    target_accuracy: Annotated[float, Meta(gt=0, le=1)] | None
    """Accuracy on the test examples to train to, as a fraction; None to train the epochs only."""
    target_loss: Over0 | None
    """Mean loss of the test examples to train to; None to train the epochs only."""
    trace_memory: bool

    @property
    def target(self) -> Target | None:
        """Return what each cell is trained to after the rounds; None for nothing."""
        if self.target_accuracy is not None:
            return Target("accuracy", self.target_accuracy)
        return None if self.target_loss is None else Target("loss", self.target_loss)
