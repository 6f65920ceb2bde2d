"""Find out how what a cell computed differs from what the other cells did.

Each framework has one vote, however many of its variants are there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..inputs.names import FLOAT32, Compute
from .cells import CellResult
from .doubts import loss_bound_of, own_doubt
from .epochs import PREDICT
from .figures import Figures
from .losses import first_difference
from .reference import Reference

MAX_CHANGE_RATIO = 4.0
"""The largest ratio of the change of a parameter in an epoch to that in another framework."""
MIN_NUMBERS = 8
"""The fewest numbers of a parameter whose change is compared in size where each framework draws its
own dropout masks; of fewer only whether they change. The change of a single one goes either way: in
three of ten pairs of normal numbers one is four times as large as the other, of eight in one of
a thousand."""
MAX_CHANGE_DISTANCE, MAX_COMPARED_STEPS = 0.5, 100
"""The largest relative distance of the change of all parameters from another framework's, and the
most steps of an epoch for which it is compared. Adam may turn the change of one parameter by a
third: near 0 rounding decides the sign of a gradient, and so of a whole step (resnet63, one step: a
parameter up to 0.39, all together up to 0.13). A long epoch amplifies rounding, so it is compared
in no more steps than those in which the drift was measured: in lenet5 honest rows were 0.04 to 0.23
apart after 52 steps, as far as its drift, and 0.07 to 0.72 after 100."""
MAX_CHANGE_DRIFTS = 1.5
"""The same as a multiple of how far the change moves from perturbed weights, where that is more."""
Sketch = list[float | None]


class Drift(NamedTuple):
    """Hold how far the change of an epoch moves from perturbed weights, relative to it, and in how
    many steps that was measured.
    """

    change: float
    steps: int


NO_DRIFT = Drift(0.0, MAX_COMPARED_STEPS)


def drift_of(*results: CellResult) -> Drift:
    """Return the largest drift of cells, in the steps for which those of all are known."""
    known = [len(result.loss_drift) for result in results if result.loss_drift]
    change = max(result.change_drift for result in results)
    return Drift(change, min([MAX_COMPARED_STEPS, *known]))


def change_difference(
    reference: Reference,
    steps: int,
    ours: Mapping[str, Sketch],
    theirs: Mapping[str, Sketch],
    compute: Compute = FLOAT32,
    drift: Drift = NO_DRIFT,
) -> str | None:
    """Return how our change of the weights in an epoch differs from theirs, or None.

    The text is to be continued with "than in". Only the sizes of the changes are compared for
    models with dropouts, of which each framework draws its own masks, and in other
    precisions than float32: mlp7_relu, which has noise to learn, changed by 54 % otherwise in JAX
    than in PyTorch.
    """
    if found := size_difference(reference, ours, theirs):
        return found
    if reference.masked or steps > drift.steps or compute != FLOAT32:
        return None
    names = _compared(reference, ours, theirs)
    distance = _norm(_distance(ours[name], theirs[name]) for name in names)
    whole = _norm(_norm(theirs[name]) for name in names)
    if distance <= max(MAX_CHANGE_DISTANCE, MAX_CHANGE_DRIFTS * drift.change) * whole:
        return None
    return f"an epoch changed the weights differently (by {distance / whole:.0%})"


def epoch_difference(
    reference: Reference,
    epoch: int,
    steps: int,
    ours: Mapping[str, Sketch],
    theirs: Mapping[str, Sketch],
    compute: Compute,
    drift: Drift,
) -> str | None:
    """Return the same of an epoch of a round: of one that goes on from another only sizes are
    compared, as rounding has moved its start.
    """
    if epoch > 1:
        return size_difference(reference, ours, theirs)
    return change_difference(reference, steps, ours, theirs, compute, drift)


def size_difference(
    reference: Reference, ours: Mapping[str, Sketch], theirs: Mapping[str, Sketch]
) -> str | None:
    """Return which parameter our epoch changed by much more or less than theirs, or None."""
    for name in _compared(reference, ours, theirs):
        a, b = _norm(ours[name]), _norm(theirs[name])
        if reference.masked and _numbers(theirs[name]) < MIN_NUMBERS and min(a, b) > 0:
            continue
        if max(a, b) > MAX_CHANGE_RATIO * min(a, b):
            how = "more" if a > b else "less"
            return f"an epoch changed {name} {how} ({a:.2g}, not {b:.2g})"
    return None


def _numbers(sketch: Sketch) -> int:
    """Return how many numbers a sketch has of a parameter; those behind them are zeros."""
    return sum(value != 0 for value in sketch)


def _compared(
    reference: Reference, ours: Mapping[str, Sketch], theirs: Mapping[str, Sketch]
) -> list[str]:
    """Return the parameters whose changes are more than rounding."""
    return [name for name in theirs if name in ours and name not in reference.rounding_only]


def differing_from_others(comparison: Figures, result: CellResult) -> str | None:
    """Return how what the cell computed in an epoch differs from what the others did, or None.

    Where cells differ, those are right with which more frameworks agree; none is where as many do.
    """
    others = [
        other
        for other in comparison.results
        if other is not result
        and other.cell.work == result.cell.work
        and other.cell.compute == result.cell.compute
        and other.steady
        and own_doubt(comparison, other) is None
    ]
    found = {other.name: _difference(comparison, result, other) for other in others}
    agreeing = {o.cell.framework for o in others if not found[o.name]} | {result.cell.framework}
    opposing = {o.cell.framework for o in others if found[o.name]}
    if len(opposing) < len(agreeing):
        return None
    differing = {name: words for name, words in found.items() if words}
    return f"{next(iter(differing.values()))} than in {', '.join(differing)}"


def _difference(comparison: Figures, result: CellResult, other: CellResult) -> str | None:
    """Return how what the cell computed differs from the other, or None; "than in" is to follow."""
    reference = comparison.reference
    if reference is None or not result.steady:
        return None
    if result.cell.task == PREDICT:
        return _prediction_difference(reference, result, other)
    theirs, drift = other.changes_of_epochs, drift_of(result, other)
    differences = (
        epoch_difference(
            reference, epoch, steps, changes, theirs[epoch, steps], result.cell.compute, drift
        )
        for (epoch, steps), changes in result.changes_of_epochs.items()
        if (epoch, steps) in theirs
    )
    return next(filter(None, differences), None) or _loss_difference(reference, result, other)


def _loss_difference(reference: Reference, result: CellResult, other: CellResult) -> str | None:
    """Return which step of which epoch has another loss, or None.

    A model with dropouts is left out: each framework draws its own masks.
    """
    if reference.masked or not (result.loss_drift and other.loss_drift):
        return None
    bound, theirs = 2 * loss_bound_of(reference, result), other.longest_losses
    for name, losses in result.longest_losses.items():
        drifts = (result.loss_drift, other.loss_drift)
        if found := first_difference(losses, theirs.get(name, []), drifts, bound):
            step, ours, right = found
            return f"the loss of step {step} of {name} is another one ({ours}, not {right})"
    return None


def _prediction_difference(
    reference: Reference, result: CellResult, other: CellResult
) -> str | None:
    """Return which batch's logits, or how many predicted labels, differ from the other's, or None.

    The weights and the examples are the same. The text is to be continued with "than in".
    """
    bound, theirs = 2 * loss_bound_of(reference, result), other.longest_losses
    for name, losses in result.longest_losses.items():
        for step, (a, b) in enumerate(zip(losses, theirs.get(name, []), strict=False), 1):
            if a != b and (a is None or b is None or abs(a - b) > bound * abs(b)):
                return f"the logits of batch {step} of {name} have another loss"
    if result.predictions is None or other.predictions is None:
        return None
    if result.cell.compute != FLOAT32:  # near ties are those of float32
        return None
    differing = abs(result.predictions.correct - other.predictions.correct)
    if differing <= max(result.predictions.near_ties, other.predictions.near_ties):
        return None
    return f"{differing:,} more or fewer examples are predicted right"


def _distance(a: Sketch, b: Sketch) -> float:
    """Return the Euclidean distance; infinite where one value is not finite and the other is."""
    return _norm(
        None if x is None or y is None else x - y for x, y in zip(a, b, strict=False) if x != y
    )


def _norm(values: Iterable[float | None]) -> float:
    """Return the Euclidean norm; infinite where a value is not finite."""
    return math.hypot(*(math.inf if value is None else value for value in values))
