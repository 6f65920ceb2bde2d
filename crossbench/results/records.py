"""What a comparison leaves behind: plain values, enough to recompute every figure of the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

FLOAT64_BOUND = 1e-9
"""How far a tensor may be from the reference's in float64, as ‖a - b‖ / ‖b‖."""
FLOAT32_BOUND = 1e-2
"""The same in float32, where rounding and ties in a max-pool move the figures."""


# checked where a file is read
Positive = Annotated[int, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
Deviations = Annotated[dict[str, float | None], Meta(min_length=1)]


@dataclass(frozen=True)
class Parity:
    """How far each tensor was from the NumPy float64 reference's: ‖a - b‖ / ‖b‖ by name.

    A value that is not finite is kept as None.
    """

    float64: Deviations
    float32: Deviations

    @property
    def agrees(self) -> bool:
        return self.disagreement is None

    @property
    def disagreement(self) -> str | None:
        """Where it differs and by how much, or None: float64 first, then float32."""
        for precision, bound in (("float64", FLOAT64_BOUND), ("float32", FLOAT32_BOUND)):
            name, value = worst(getattr(self, precision))
            if value is None or value > bound:
                by = "is not finite" if value is None else f"differs by {value:.1e}"
                return f"{name} {by} in {precision} (at most {bound:.0e} is allowed)"
        return None


def worst(deviations: dict[str, float | None]) -> tuple[str, float | None]:
    """The largest deviation and the tensor it is at; one that is not finite is the largest."""
    return max(deviations.items(), key=lambda item: float("inf") if item[1] is None else item[1])


@dataclass(frozen=True)
class Epoch:
    """One timed epoch. Round 0 is the first of its process: its epoch 0 holds compilation."""

    round: Count
    epoch: Count
    wall_seconds: Seconds
    cpu_seconds: Annotated[float, Meta(ge=0)]
    losses: list[float | None]
    """Of each step; None where it was not finite."""
    figures: dict[str, float]
    """What only the framework's runtime can tell, by name with its unit."""


@dataclass(frozen=True)
class Cell:
    """What was asked for: one framework on one device, and why it cannot run, if it cannot."""

    framework: str
    title: str
    device: str
    threads: int
    named: bool
    """Whether the user named it: then its absence is a failure."""
    unavailable: str | None = None


@dataclass
class CellResult:
    """What became of a cell. reason: why it is unavailable or failed, in a line."""

    cell: Cell
    status: Literal["pending", "ran", "unavailable", "failed"] = "pending"
    reason: str | None = None
    traceback: str | None = None
    parity: Parity | None = None
    start_seconds: float | None = None
    """From the start of the process to the data in place, wall."""
    epochs: list[Epoch] = field(default_factory=list)
    test_accuracy: float | None = None
    """After the first round, as a fraction."""
    peak_memory: int | None = None
    """Bytes in training: on a GPU the allocator's figure, on the CPU the resident peak."""
    threads_reported: int | None = None
    """What the framework itself says."""
    cpus_allowed: int | None = None
    """CPUs on which any of the process's threads may run, read while it trained."""
    details: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.cell.framework} {self.cell.device}"


@dataclass(frozen=True)
class Data:
    """Which data it was. batches are the whole ones of an epoch; a rest is left over."""

    name: str
    sha256: str
    train_images: Positive
    test_images: Positive
    batch_size: Positive
    batches: Positive
    note: str | None = None


@dataclass(frozen=True)
class Machine:
    """Where it ran. cpus: those that this process may use."""

    cpu: str
    cpus: int
    memory_bytes: int
    gpus: list[str]
    system: str
    python: str
    libraries: dict[str, str]


@dataclass(frozen=True)
class Settings:
    """What was asked for, as far as it is not in the model, the data and the cells."""

    rounds: int
    epochs: int
    seed: int
    threads: int
    timeout: float
