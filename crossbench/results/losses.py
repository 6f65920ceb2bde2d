"""Find the first step whose loss differs by more than rounding explains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

MAX_DRIFT_FACTOR = 30.0
"""The largest relative difference of a step's loss between two trainings, as a multiple of that by
which the losses of either move where the weights are rounded otherwise."""
MAX_GROWTH = 30.0
"""The same where that is not known of a step, as a multiple of the difference of the steps before
it."""

Losses = Sequence[float | None]


def first_difference(
    ours: Losses, theirs: Losses, drifts: Sequence[Losses], bound: float
) -> tuple[int, str, str] | None:
    """Return the first step, from 1, whose losses differ, with both; None where none does.

    drifts: by how much the losses of a training move by rounding, relative to them. bound: the
    relative difference that is always allowed.
    """
    known = [list(accumulate((value or 0.0 for value in drift), max)) for drift in drifts]
    before = bound / MAX_GROWTH
    for step, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        drift = [values[step] for values in known if step < len(values)]
        allowed = max([bound, *(MAX_DRIFT_FACTOR * value for value in drift)])
        if not drift:
            allowed = max(bound, MAX_GROWTH * before)
        if a == b:
            continue
        if a is None or b is None or abs(a - b) > allowed * abs(b):
            return step + 1, shown(a), shown(b)
        before = max(before, abs(a / b - 1) if b else 0.0)
    return None


def shown(loss: float | None) -> str:
    """Return a loss for a message."""
    return "not finite" if loss is None else f"{loss:.7g}"
