"""Define what each part of a training step takes: a layer, the loss, the optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from .number_types import Count, NonNegative, Over0, Positive


@dataclass(frozen=True)
class PartCost:
    """Describe what a part of the training step computes and moves, one for equal layers.

    The figures are of one of the equal layers, forward and backward, and 0 for the loss and the
    optimizer.
    """

    name: str
    """Name of the layer, of the first of equal ones; "loss" or "optimizer". Layers before the first
    weights are one part."""
    count: Positive
    """Number of equal layers."""
    flops: Count
    """FLOPs of matrix multiplications and convolutions, for an example."""
    example_bytes: NonNegative
    """Bytes moved for each example: the activations, if none stays in a cache."""
    step_bytes: NonNegative
    """Bytes moved in each step: the weights and their gradients."""


@dataclass(frozen=True)
class PartTime:
    """Hold what a part takes, in one round."""

    round: Positive
    """Round, as of the epochs."""
    seconds: Annotated[float, Meta(ge=-1e9, le=1e9)]
    """Wall seconds by which a step with the part takes longer than the same without it: the median
    of several passes; noise may make it negative."""
    with_seconds: Over0
    """Median wall seconds of the steps with it."""
    gradient_norm: NonNegative | None
    """Norm of all gradients of the last timed call with the part; None if unknown or not finite."""
    collect_seconds: NonNegative = 0.0
    """Wall seconds of the collection of garbage before that call."""


@dataclass
class PartResult:
    """Hold what was measured of a part in a cell."""

    deviation: NonNegative | None
    """The largest of its float64 gradients from the reference's, ‖a - b‖ / ‖b‖; None where it is
    not finite."""
    times: list[PartTime] = field(default_factory=list)
    """What it takes, one per round."""
    problem: str | None = None
    """Why it could not be proved or timed, in a line."""
