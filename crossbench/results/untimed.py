"""Define what the calls of an adapter take that are in no epoch's seconds."""

from __future__ import annotations

from dataclasses import dataclass

from .number_types import Count, NonNegative, Positive


@dataclass(frozen=True)
class UntimedCalls:
    """Hold what one method of a workload took outside of the timed epochs, in a round.

    calls: how many there were. seconds, cpu_seconds: of a call, or of a batch of it: the median of
    all but the first with as many batches, which may compile. arrays: how many that moves.
    copy_seconds: what NumPy takes to copy these arrays, with the axes of pictures exchanged.
    """

    calls: Positive
    seconds: NonNegative
    cpu_seconds: NonNegative
    arrays: Count
    copy_seconds: NonNegative
