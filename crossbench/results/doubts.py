"""Why a cell that ran is not ranked: what its records show that cannot be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING

from .records import FIRST_EPOCH, MASKED, STEADY_EPOCH, CellResult, Reference

if TYPE_CHECKING:
    from .comparison import Comparison

LOSS_BOUND, LOSS_TIMES = 1e-5, 10.0
"""How far a loss of the first steps may be from the reference's, relatively, and how many times as
far as the reference's own float32, where that is more: near ties in a max-pool move it. In bfloat16
it is off by 2e-4."""
LATE_SHARE, LATE_SECONDS = 0.05, 0.005
"""The share of an epoch, and the seconds, for which the device may work on after the clock has
stopped: more than it takes once more or once less to bring the weights to the host."""
CHANGE_TIMES = 4.0
"""How many times as large as in others what an epoch changes in a parameter may be."""
CHANGE_BOUND, CHANGE_STEPS = 0.5, 100
"""How far what it changes in all parameters may be from the others' change, relatively, and in
epochs of how many steps at most: those of a long epoch multiply what rounding began. Of one
parameter Adam may turn a third: near 0 rounding decides about a gradient's sign, and so about a
whole step (resnet63, one step: a parameter up to 0.39, all together up to 0.13)."""

Sketch = list[float | None]


def difference(
    reference: Reference, steps: int, ours: Mapping[str, Sketch], theirs: Mapping[str, Sketch]
) -> str | None:
    """Return what an epoch of so many steps changed otherwise, or None.

    The words go on with "than in". Each framework draws its own dropout masks: with these, only
    the sizes are compared.
    """
    names = [name for name in theirs if name in ours and name not in reference.by_chance]
    for name in names:
        a, b = _norm(ours[name]), _norm(theirs[name])
        if max(a, b) > CHANGE_TIMES * min(a, b):
            how = "more" if a > b else "less"
            return f"an epoch changed {name} {how} ({a:.2g}, not {b:.2g})"
    if reference.masked or steps > CHANGE_STEPS:
        return None
    distance = _norm(_distance(ours[name], theirs[name]) for name in names)
    whole = _norm(_norm(theirs[name]) for name in names)
    if distance <= CHANGE_BOUND * whole:
        return None
    return f"an epoch changed the weights otherwise (by {distance / whole:.0%})"


def own_doubt(comparison: Comparison, result: CellResult) -> str | None:
    """Return what is wrong with the cell, whatever the others did."""
    if result.parity is None:
        return "it was not proved to do the same work"
    if result.parity.disagreement:
        return f"it does not do the same work: {result.parity.disagreement}"
    return (
        _other_losses(comparison.reference, result)
        or _unfinished(result)
        or _over_peak(comparison, result)
    )


def _other_losses(reference: Reference | None, result: CellResult) -> str | None:
    if reference is None:
        return None
    for what, losses in _first_losses(result):
        expected, bound = reference.first_losses.get(what, []), _loss_bound(reference, what)
        for step, (loss, right) in enumerate(zip(losses, expected, strict=False), 1):
            if loss is None or abs(loss - right) > bound * abs(right):
                found = "not finite" if loss is None else f"{loss:.7g}"
                return (
                    f"it does not do the same work where it is timed: the loss of step {step} "
                    f"({what}) is {found}, where the reference has {right:.7g}"
                )
    return None


def _loss_bound(reference: Reference, what: str) -> float:
    exact, single = reference.first_losses.get(what, []), reference.float32_losses.get(what, [])
    own = [abs(a / b - 1) for a, b in zip(single, exact, strict=False) if b]
    return max(LOSS_BOUND, LOSS_TIMES * max(own, default=0.0))


def _first_losses(result: CellResult) -> Iterator[tuple[str, Sketch]]:
    """Yield the losses that the reference has too, by their name there."""
    yield MASKED, result.masked_losses
    for epoch in result.epochs:
        if epoch.epoch <= 1:
            yield (STEADY_EPOCH if epoch.epoch else FIRST_EPOCH), epoch.losses


def _unfinished(result: CellResult) -> str | None:
    if any(epoch.still_training for epoch in result.epochs):
        return "an epoch was not over when it returned: the weights changed afterwards"
    if not result.steady:
        return None
    late = median(epoch.late_seconds for epoch in result.steady)
    if late > max(LATE_SECONDS, LATE_SHARE * median(e.wall_seconds for e in result.steady)):
        return f"its epochs were not over when they returned: the device went on for {late:.2g} s"
    return None


def _over_peak(comparison: Comparison, result: CellResult) -> str | None:
    gflops, peak = comparison.gflops(result), comparison.peak(result)
    if gflops is None or peak is None or gflops <= peak.gflops:
        return None
    return (
        f"{gflops:.4g} GFLOP/s are more than a matrix product reached on the device "
        f"({peak.gflops:.4g}): it cannot have done all of the work"
    )


def other_change(comparison: Comparison, result: CellResult) -> str | None:
    """Return how the cell's change of the weights differs from that of most others."""
    reference, steps = comparison.reference, comparison.data.batches
    if reference is None or not result.changes:
        return None
    others = [
        other
        for other in comparison.results
        if other is not result and other.changes and comparison.own_doubt(other) is None
    ]
    found = {
        other.name: words
        for other in others
        if (words := difference(reference, steps, result.changes, other.changes))
    }
    if 2 * len(found) <= len(others):
        return None
    return f"{next(iter(found.values()))} than in {', '.join(found)}"


def _distance(a: Sketch, b: Sketch) -> float:
    return _norm(
        None if x is None or y is None else x - y for x, y in zip(a, b, strict=False) if x != y
    )


def _norm(values: Iterable[float | None]) -> float:
    """Return the Euclidean norm; infinite where a value is not finite."""
    return math.hypot(*(math.inf if value is None else value for value in values))
