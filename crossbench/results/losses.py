"""Find the first step whose loss differs by more than rounding explains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MAX_DRIFT_FACTOR = 30.0
"""The largest relative difference of a step's loss between two trainings, as a multiple of that by
which the losses of either move from perturbed weights."""
MAX_GROWTH = 30.0
"""The same where that is not known of a step, as a multiple of the difference of the steps before
it."""

Losses = Sequence[float | None]


def first_difference(
    ours: Losses, theirs: Losses, drifts: Sequence[Losses], bound: float
) -> tuple[int, str, str] | None:
    """Return the first step, from 1, whose losses differ, with both; None where none does.

    drifts: by how much the losses of a training move from perturbed weights, relative to them.
    bound: the relative difference that is always allowed.
    """
    steps = min(len(ours), len(theirs))
    if not steps:
        return None
    a, b = (np.array(losses[:steps], np.float64) for losses in (ours, theirs))  # None is NaN
    with np.errstate(all="ignore"):
        differences = np.where(a == b, 0.0, np.abs(a - b) / np.minimum(np.abs(a), np.abs(b)))
        differences[np.isnan(a) & np.isnan(b)] = 0.0
        before = np.maximum.accumulate([bound / MAX_GROWTH, *differences[:-1]])
        allowed = np.maximum(bound, MAX_GROWTH * before)
        known = min(steps, max(map(len, drifts)))
        allowed[:known] = bound
        for drift in drifts:
            moved = np.maximum.accumulate(np.nan_to_num(np.array(drift[:known], np.float64)))
            if len(moved):  # beyond its steps as far as at the last of them
                moved = np.append(moved, np.full(known - len(moved), moved[-1]))
                allowed[:known] = np.maximum(allowed[:known], MAX_DRIFT_FACTOR * moved)
        odd = np.flatnonzero(~(differences <= allowed))
    if not len(odd):
        return None
    step = int(odd[0])
    return step + 1, shown(ours[step]), shown(theirs[step])


def shown(loss: float | None) -> str:
    """Return a loss for a message."""
    return "not finite" if loss is None else f"{loss:.7g}"
