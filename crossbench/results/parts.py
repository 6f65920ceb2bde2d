"""Define what each part of a training step takes: a layer, the loss, the optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from .number_types import Count, NonNegative, Over0, Positive


@dataclass(frozen=True)
class PartCost:
    """Describe what a part of the training step computes and moves, one for equal layers.

    name: that of the layer, of the first of equal ones; "loss" or "optimizer". count: how many
    equal layers the model has. The other figures are of one of them, forward and backward, and 0
    for the loss and the optimizer.
    """

    name: str
    count: Positive
    flops: Count
    """Of matrix multiplications and convolutions, for an example."""
    example_bytes: NonNegative
    """Moved for each example: the activations, if none stays in a cache."""
    step_bytes: NonNegative
    """Moved in each step: the weights and their gradients."""


@dataclass(frozen=True)
class PartTime:
    """Hold what a part takes, in one round.

    seconds: by which a step with the part takes longer than the same without it, the median of
    several passes; noise may make it negative. with_seconds: the median of the steps with it.
    gradient_norm: of all gradients with the part, those of the last timed call; None where it is
    not finite, or not known. collect_seconds: of the collection of garbage before that call.
    """

    round: Positive
    seconds: Annotated[float, Meta(ge=-1e9, le=1e9)]
    with_seconds: Over0
    gradient_norm: NonNegative | None
    collect_seconds: NonNegative = 0.0


@dataclass
class PartResult:
    """Hold what was measured of a part in a cell.

    deviation: the largest of its float64 gradients from the reference's, ‖a - b‖ / ‖b‖; None where
    that is not finite. problem: why the part could not be proved or timed, in a line.
    """

    deviation: NonNegative | None
    times: list[PartTime] = field(default_factory=list)
    problem: str | None = None
