"""Find out why a cell that ran is not ranked: its records show that it did other work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING

from ..inputs.names import FLOAT32, Compute
from .cells import CellResult
from .epochs import PREDICT
from .parity import FLOAT32_FACTOR
from .reference import FIRST_EPOCH, MASKED, STEADY_EPOCH, Reference, ReferenceLosses

if TYPE_CHECKING:
    from .comparison import Comparison

MIN_TIMED_LOSS_BOUND = 1e-5
"""The largest relative error of a loss in the first steps: this bound, or FLOAT32_FACTOR times the
error of the reference's own float32, as near ties in a max-pool move the loss, or NEAR_ZERO_FACTOR
times that where inputs of ReLUs near 0 are on the other side, whichever is largest.
In bfloat16 it is off by 2e-4."""
NEAR_ZERO_FACTOR = 2.0
"""A few of those inputs may move a loss by more than all of them do: in lenet5 with batches of 512
JAX and Keras were off by 1.03e-5, the reference by 1.01e-5."""
MIN_ROUNDED_LOSS_BOUND = 1e-2
"""The same in bfloat16 and TensorFloat-32: of a mean over examples the
errors cancel in part, by chance, and an optimizer that divides by the size of a gradient makes a
whole step of its rounding (text_lstm, whose optimizer is RMSprop: 0.3 % after a step)."""
MIN_ERROR_SHARE = 0.01
"""The smallest error of any loss in the first steps there, as a share of the reference's largest
with the same rounding."""
MAX_LATE_SHARE, MAX_LATE_SECONDS = 0.05, 0.005
"""Share of an epoch, and seconds, for which the device may go on working after the clock stopped,
whichever is larger. The time to copy the weights to the host varies by less."""
MAX_CHANGE_RATIO = 4.0
"""The largest ratio of the change of a parameter in an epoch to that in another framework."""
MAX_CHANGE_DISTANCE, MAX_COMPARED_STEPS = 0.5, 100
"""The largest relative distance of the change of all parameters from another framework's, and the
most steps of an epoch for which it is compared: a long epoch amplifies rounding. Adam may turn the
change of one parameter by a third: near 0 rounding decides the sign of a gradient, and so of a
whole step (resnet63, one step: a parameter up to 0.39, all together up to 0.13)."""
MAX_PEAK_RATIO = 3.0
"""The largest ratio of a cell's FLOPs per second to those of the best matrix multiplication. A
product may use half of a processor where the framework's convolutions use all of it: on an AMD
EPYC PyTorch reached 236 GFLOP/s by MKL's product, 356 in resnet63 and 237 in text_lstm by oneDNN.
Winograd's convolutions multiply up to 2.25 times less than FLOPs are counted."""

Sketch = list[float | None]


def change_difference(
    reference: Reference,
    steps: int,
    ours: Mapping[str, Sketch],
    theirs: Mapping[str, Sketch],
    compute: Compute = FLOAT32,
) -> str | None:
    """Return how our change of the weights in an epoch differs from theirs, or None.

    The text is to be continued with "than in". Only the sizes of the changes are compared for
    models with dropouts, of which each framework draws its own masks, and in other
    precisions than float32: mlp7_relu, which has noise to learn, changed by 54 % otherwise in JAX
    than in PyTorch.
    """
    names = [name for name in theirs if name in ours and name not in reference.rounding_only]
    for name in names:
        a, b = _norm(ours[name]), _norm(theirs[name])
        if max(a, b) > MAX_CHANGE_RATIO * min(a, b):
            how = "more" if a > b else "less"
            return f"an epoch changed {name} {how} ({a:.2g}, not {b:.2g})"
    if reference.masked or steps > MAX_COMPARED_STEPS or compute != FLOAT32:
        return None
    distance = _norm(_distance(ours[name], theirs[name]) for name in names)
    whole = _norm(_norm(theirs[name]) for name in names)
    if distance <= MAX_CHANGE_DISTANCE * whole:
        return None
    return f"an epoch changed the weights differently (by {distance / whole:.0%})"


def own_doubt(comparison: Comparison, result: CellResult) -> str | None:
    """Return what is wrong with the cell, without comparing it to others, or None."""
    if result.parity is None:
        return "it was not proved to do the same work"
    if result.parity.disagreement:
        return f"it does not do the same work: {result.parity.disagreement}"
    compute = result.cell.compute
    if compute != FLOAT32:
        if result.precision is None:
            return f"it was not proved to compute in {compute}"
        if wrong := result.precision.disagreement(compute):
            return f"it does not compute in {compute} as it should: {wrong}"
    return (
        _wrong_loss(comparison.reference, result)
        or _unfinished(result)
        or over_peak(comparison, result)
    )


def _wrong_loss(reference: Reference | None, result: CellResult) -> str | None:
    """Return which loss of the first steps differs from the reference's, or None."""
    reference_losses = reference.losses_of(result.cell) if reference else None
    if reference_losses is None:
        return None
    compute, errors = result.cell.compute, list[float]()
    for epoch, losses in _first_losses(result):
        expected = reference_losses.float64.get(epoch, [])
        bound = _loss_bound(reference_losses, epoch, compute)
        errors += _errors(losses, expected)
        for step, (loss, right) in enumerate(zip(losses, expected, strict=False), 1):
            if loss is None or abs(loss - right) > bound * abs(right):
                found = "not finite" if loss is None else f"{loss:.7g}"
                return (
                    f"it does not do the same work where it is timed: the loss of step {step} "
                    f"({epoch}) is {found}, but {right:.7g} in the reference"
                )
    if compute != FLOAT32 and max(errors, default=0.0) < MIN_ERROR_SHARE * max(
        (
            _error_by_rounding(reference_losses, epoch, compute)
            for epoch in reference_losses.float64
        ),
        default=0.0,
    ):
        return f"it does not compute in {compute} where it is timed: its losses are too exact"
    return None


def _loss_bound(reference: ReferenceLosses, epoch: str, compute: Compute) -> float:
    """Return the largest relative error of a loss in that epoch."""
    by_rounding = FLOAT32_FACTOR * _error_by_rounding(reference, epoch, compute)
    if compute != FLOAT32:
        return max(MIN_ROUNDED_LOSS_BOUND, by_rounding)
    near_zero = NEAR_ZERO_FACTOR * _largest_error(reference, epoch, reference.near_zero)
    return max(MIN_TIMED_LOSS_BOUND, by_rounding, near_zero)


def _error_by_rounding(reference: ReferenceLosses, epoch: str, compute: Compute) -> float:
    """Return the largest relative error of the reference's own losses in a precision."""
    return _largest_error(reference, epoch, [reference.computed_in(compute)])


def _largest_error(
    reference: ReferenceLosses, epoch: str, forms: Iterable[dict[str, list[float]]]
) -> float:
    """Return the largest relative error in that epoch of forms of the reference's losses."""
    exact = reference.float64.get(epoch, [])
    return max((e for form in forms for e in _errors(form.get(epoch, []), exact)), default=0.0)


def _errors(losses: Iterable[float | None], exact: Iterable[float]) -> list[float]:
    """Return the relative errors of losses."""
    pairs = zip(losses, exact, strict=False)
    return [abs(a / b - 1) for a, b in pairs if a is not None and b]


def _first_losses(result: CellResult) -> Iterator[tuple[str, Sketch]]:
    """Yield the losses that the reference has too, with the name of their epoch there."""
    yield MASKED, result.masked_losses
    for epoch in result.epochs:
        if epoch.epoch <= 1:
            yield (STEADY_EPOCH if epoch.epoch else FIRST_EPOCH), epoch.losses


def _unfinished(result: CellResult) -> str | None:
    """Return how an epoch went on after it returned, or None."""
    if any(epoch.still_training for epoch in result.epochs):
        return "an epoch was not over when it returned: the weights changed afterwards"
    if not result.steady:
        return None
    late = median(epoch.late_seconds for epoch in result.steady)
    if late > max(MAX_LATE_SECONDS, MAX_LATE_SHARE * median(e.wall_seconds for e in result.steady)):
        return f"its epochs were not over when they returned: the device went on for {late:.2g} s"
    return None


def over_peak(comparison: Comparison, result: CellResult) -> str | None:
    """Return that the cell is faster than the device can be, or None."""
    gflops, peak = comparison.gflops(result), comparison.peak(result)
    if gflops is None or peak is None or gflops <= MAX_PEAK_RATIO * peak.gflops:
        return None
    return (
        f"{gflops:.4g} GFLOP/s are more than {MAX_PEAK_RATIO:.0f} times the best matrix "
        f"multiplication on the device ({peak.gflops:.4g}): it cannot have done all the work"
    )


def differing_from_others(comparison: Comparison, result: CellResult) -> str | None:
    """Return how what the cell computed in an epoch differs from what most others did, or None."""
    others = [
        other
        for other in comparison.results
        if other is not result
        and other.cell.work == result.cell.work
        and other.cell.compute == result.cell.compute
        and other.steady
        and comparison.own_doubt(other) is None
    ]
    differing = {
        other.name: words for other in others if (words := _difference(comparison, result, other))
    }
    if 2 * len(differing) <= len(others):
        return None
    return f"{next(iter(differing.values()))} than in {', '.join(differing)}"


def _difference(comparison: Comparison, result: CellResult, other: CellResult) -> str | None:
    """Return how the results of the cell's first steady epoch differ from the other's, or None."""
    if comparison.reference is None or not result.steady:
        return None
    if result.cell.task == PREDICT:
        return _prediction_difference(comparison.reference, result, other)
    differences = (
        change_difference(
            comparison.reference, steps, changes, other.changes[steps], result.cell.compute
        )
        for steps, changes in result.changes.items()
        if steps in other.changes
    )
    return next(filter(None, differences), None)


def _prediction_difference(
    reference: Reference, result: CellResult, other: CellResult
) -> str | None:
    """Return which batch's logits, or how many predicted labels, differ from the other's, or None.

    The weights and the examples are the same. The text is to be continued with "than in".
    """
    losses = reference.losses_of(result.cell)
    bound = 2 * (
        _loss_bound(losses, STEADY_EPOCH, result.cell.compute) if losses else MIN_TIMED_LOSS_BOUND
    )
    ours, theirs = (max((e.losses for e in r.steady), key=len) for r in (result, other))
    for step, (a, b) in enumerate(zip(ours, theirs, strict=False), 1):
        if a != b and (a is None or b is None or abs(a - b) > bound * abs(b)):
            return f"the logits of batch {step} have another loss"
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
