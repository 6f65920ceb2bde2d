"""Define what the calls of an adapter take that are in no epoch's seconds."""

from __future__ import annotations

from dataclasses import dataclass

from .number_types import Count, NonNegative, Positive


@dataclass(frozen=True)
class UntimedCalls:
    """Hold what one method of a workload took outside of the timed epochs, in a round."""

    calls: Positive
    """Calls in the round."""
    seconds: NonNegative
    """Wall seconds of a call, of `place` for a batch: the median of all calls but the first with as
    many batches, which may compile."""
    cpu_seconds: NonNegative
    """CPU seconds, likewise."""
    arrays: Count
    """Arrays that it moves."""
    copy_seconds: NonNegative
    """Wall seconds that NumPy takes to copy these arrays, with the axes of pictures exchanged."""
