"""Define how far a timed epoch is from the same steps in calls of a few batches each."""

from __future__ import annotations

from dataclasses import dataclass

from .number_types import Count, NonNegative, Positive

NOT_FINITE = 1e9
"""Stands for a deviation that is not finite."""


@dataclass(frozen=True)
class Replay:
    """Hold what was found in a round when a timed epoch was run again, untimed and in pieces.

    A deviation that is not finite is 1e9.
    """

    round: Positive
    """Round that timed it."""
    runs: Positive
    """Epochs and repetitions that the round timed."""
    epoch: Count
    """Epoch that was drawn: 0 for the round's first."""
    repetition: Positive
    """Repetition of it that was drawn, from 1."""
    steps: Positive
    """How many of its steps were run again, the first ones."""
    step: Positive
    """First step, from 1, that differs by nearly as much as any."""
    timed: float | None
    """Timed loss of that step; None where it was not finite, or the epoch predicts."""
    again: float | None
    """The same where it was run again."""
    deviation: NonNegative
    """‖a - b‖ / ‖b‖ of that loss, or of the batch's logits."""
    weights_deviation: NonNegative | None
    """Distance of the weights at the end, relative to their change in the epoch; None where not all
    steps were run again, or the epoch predicts."""
    seconds: NonNegative
    """Wall seconds that it took."""
