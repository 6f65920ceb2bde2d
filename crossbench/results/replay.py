"""Define how far a timed epoch is from the same steps in calls of a few batches each."""

from __future__ import annotations

from dataclasses import dataclass

from .number_types import Count, NonNegative, Positive

NOT_FINITE = 1e9
"""Stands for a deviation that is not finite."""


@dataclass(frozen=True)
class Replay:
    """Hold what was found in a round when a timed epoch was run again, untimed and in pieces.

    epoch, repetition: which one was drawn, of `runs` that the round timed. steps: how many of its
    steps were run again, the first ones. step: from 1, the first that differs by nearly as much as
    any. timed, again: its loss in either; None where it was not finite, or the epoch predicts.
    deviation: ‖a - b‖ / ‖b‖ of that loss, or of the batch's logits. weights_deviation: the distance
    between the weights at the end, relative to their change in the epoch; None where not all steps
    were run again, or the epoch predicts. Both are NOT_FINITE at most. seconds: what it took.
    """

    round: Positive
    runs: Positive
    epoch: Count
    repetition: Positive
    steps: Positive
    step: Positive
    timed: float | None
    again: float | None
    deviation: NonNegative
    weights_deviation: NonNegative | None
    seconds: NonNegative
