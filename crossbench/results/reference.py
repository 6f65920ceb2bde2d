"""Define the losses that the NumPy reference computes for the timed epochs."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..inputs.names import FLOAT32, Compute
from .cells import Cell
from .epochs import Task
from .number_types import Positive

FIRST_EPOCH, STEADY_EPOCH, UNDROPPED = "first epoch", "steady epoch", "without dropouts"
"""Names of the epochs whose first losses the reference computes: a round's first epoch, its first
steady one, or, to train models with dropouts, an epoch whose dropouts have the rate 0."""


@dataclass(frozen=True)
class ReferenceLosses:
    """Hold the NumPy reference's losses of the first steps of a task with a batch size.

    By epoch: "first epoch" and "steady epoch", or, to train a model with dropouts, "without
    dropouts".
    """

    task: Task
    """What the epochs do: train or predict."""
    batch_size: Positive
    """Examples per step."""
    float64: dict[str, list[float]]
    """The losses in float64."""
    float32: dict[str, list[float]]
    """The losses in float32."""
    rounded: dict[Compute, dict[str, list[float]]] = field(default_factory=dict)
    """The losses by precision where the reference rounds as it does; empty if all is float32."""
    near_zero: list[dict[str, list[float]]] = field(default_factory=list)
    """The losses in float64 where the inputs of activations that are so near a step in the slope (a
    ReLU's at 0) that float32 may have them on the other side count as over it, and where they do
    not; empty where that moves none."""

    def computed_in(self, compute: Compute) -> dict[str, list[float]]:
        """Return the losses of the reference where it computes in a precision."""
        return self.float32 if compute == FLOAT32 else self.rounded.get(compute, {})


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
