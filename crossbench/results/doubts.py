"""Find out why a cell that ran is not ranked: its own records show that it did other work.

What a cell computed is compared with what others did in agreement.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from ..inputs.names import BFLOAT16, FLOAT32, TF32, Compute
from .cells import CellResult, epoch_name
from .epochs import PREDICT
from .figures import Figures, once
from .losses import first_difference, shown
from .parity import FLOAT32_FACTOR
from .reference import FIRST_EPOCH, STEADY_EPOCH, UNDROPPED, Reference, ReferenceLosses
from .replay import Replay

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
REPLAY_BOUNDS: dict[Compute, float] = {FLOAT32: 1e-5, TF32: 1e-4, BFLOAT16: 1e-3}
"""The largest relative difference of a step that was run again, where rounding does not move its
losses more. On a CPU there was none."""
REPLAYED_DRIFT: dict[Compute, float] = {FLOAT32: 2**-7, TF32: 1.0, BFLOAT16: 1.0}
"""How far rounding may move them, relative to how far they move from perturbed weights: those are
1,000 times as far off as by rounding in float32, and about as far in the others (evidence.py)."""
MAX_REPLAY_BOUND = 1e-2
"""The largest difference of such a step, however far its losses move."""
MAX_REPLAYED_CHANGE = {"cpu": 1e-3, "gpu": 0.25}
"""The largest distance of the weights at the end of an epoch that was run again, relative to their
change, by device. On a CPU there was none. On a GPU atomic additions come in any order, and Adam
makes a step of whole size out of rounding; nobody has measured it there."""
UNTIMED_SECONDS, UNTIMED_ARRAY_SECONDS, UNTIMED_COPIES = 5e-3, 2e-3, 30.0
"""Seconds, seconds for each array, and times that NumPy takes to copy all of them, that a call
outside of the timed epochs may take. PyTorch took 11 times as long for a fetch of 240 MB, and
Lux.jl 36 ms to load twelve arrays, of 5 MB together, each beside another process."""
MAX_UNTIMED_SHARE = 0.05
"""Share of an epoch, or of a step, that such a call may take however few arrays it has."""
MAX_PEAK_RATIO = 3.0
"""The largest ratio of a cell's FLOPs per second to those of the best matrix multiplication. A
product may use half of a processor where the framework's convolutions use all of it: on an AMD
EPYC PyTorch reached 236 GFLOP/s by MKL's product, 356 in resnet63 and 237 in text_lstm by oneDNN.
Winograd's convolutions multiply up to 2.25 times less than FLOPs are counted."""


@once
def own_doubt(comparison: Figures, result: CellResult) -> str | None:
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
    if result.gradient and (wrong := result.gradient.disagreement(compute)):
        return f"it does not do the same work with a whole batch: {wrong}"
    return (
        _wrong_loss(comparison.reference, result)
        or _unfinished(result)
        or _not_replayed(result)
        or _changing_losses(comparison.reference, result)
        or _untimed_work(comparison, result)
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
        bound = loss_bound(reference_losses, epoch, compute)
        errors += _errors(losses, expected)
        for step, (loss, right) in enumerate(zip(losses, expected, strict=False), 1):
            if loss is None or abs(loss - right) > bound * abs(right):
                return (
                    f"it does not do the same work where it is timed: the loss of step {step} "
                    f"({epoch}) is {shown(loss)}, but {right:.7g} in the reference"
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


def loss_bound(reference: ReferenceLosses, epoch: str, compute: Compute) -> float:
    """Return the largest relative error of a loss in that epoch."""
    by_rounding = FLOAT32_FACTOR * _error_by_rounding(reference, epoch, compute)
    if compute != FLOAT32:
        return max(MIN_ROUNDED_LOSS_BOUND, by_rounding)
    near_zero = NEAR_ZERO_FACTOR * _largest_error(reference, epoch, reference.near_zero)
    return max(MIN_TIMED_LOSS_BOUND, by_rounding, near_zero)


def loss_bound_of(reference: Reference, result: CellResult) -> float:
    """Return the largest relative error of a loss of the cell's epochs, by the reference's first
    ones.
    """
    known = reference.losses_of(result.cell)
    if known is None:
        return MIN_TIMED_LOSS_BOUND
    bounds = [loss_bound(known, epoch, result.cell.compute) for epoch in known.float64]
    return max([MIN_TIMED_LOSS_BOUND, *bounds])


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


def _first_losses(result: CellResult) -> Iterator[tuple[str, list[float | None]]]:
    """Yield the losses that the reference has too, with the name of their epoch there."""
    yield UNDROPPED, result.undropped_losses
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
    if is_late(late, median(epoch.wall_seconds for epoch in result.steady)):
        return f"its epochs were not over when they returned: the device went on for {late:.2g} s"
    return None


def is_late(late_seconds: float, wall_seconds: float) -> bool:
    """Return whether a device worked on for so long that its epoch was not over."""
    return late_seconds > max(MAX_LATE_SECONDS, MAX_LATE_SHARE * wall_seconds)


def _not_replayed(result: CellResult) -> str | None:
    """Return which timed epoch was another one where it was run again in pieces, or None."""
    for replay in result.replays:
        if found := _replay_difference(result, replay):
            repetition = f", repetition {replay.repetition}" if replay.repetition > 1 else ""
            return (
                f"it does not do the same work where it is timed: {found} in calls of a few "
                f"batches (round {replay.round}{repetition})"
            )
    return None


def _replay_difference(result: CellResult, replay: Replay) -> str | None:
    """Return how an epoch differed from that in pieces, or None; "in calls" is to follow."""
    epoch, step, weights = epoch_name(replay.epoch), replay.step, replay.weights_deviation or 0.0
    if replay.deviation > _replay_bound(result, step):
        if result.cell.task == PREDICT:
            by = f"{replay.deviation:.1e}"
            return f"the logits of batch {step} of {epoch} differ by {by} from those"
        losses = f"{shown(replay.timed)}, not {shown(replay.again)}"
        return f"the loss of step {step} of {epoch} was {losses} as"
    if weights > MAX_REPLAYED_CHANGE[result.cell.device_type]:
        by = f"{weights:.1%} of their change"
        return f"the weights at the end of {epoch} differ by {by} from those"
    return None


def _replay_bound(result: CellResult, step: int) -> float:
    """Return the largest relative difference of a step that was run again."""
    drift = max([value or 0.0 for value in result.loss_drift[:step]], default=0.0)
    by_rounding = min(MAX_REPLAY_BOUND, REPLAYED_DRIFT[result.cell.compute] * drift)
    return max(REPLAY_BOUNDS[result.cell.compute], by_rounding)


def _changing_losses(reference: Reference | None, result: CellResult) -> str | None:
    """Return which loss differs from the same one in another round that started alike, or None.

    A model with dropouts is left out: a variant that cuts a batch draws masks by its pieces. Of
    rounds whose epochs are of other lengths the first steady epochs are compared alone.
    """
    if reference is None or reference.masked or not result.loss_drift:
        return None
    bound, longest = loss_bound_of(reference, result), result.longest_losses
    steps = max((epoch.steps for epoch in result.epochs), default=0)
    alike = [
        (f"round {epoch.round}", epoch.epoch, epoch.losses)
        for epoch in result.epochs
        if epoch.epoch <= 1
    ]
    alike += [("the training to the target", 0, t.losses[:steps]) for t in result.to_target[:1]]
    for where, number, losses in alike:
        name = epoch_name(number)
        drifts = [result.loss_drift]
        if found := first_difference(losses, longest.get(name, []), drifts, bound):
            step, other, first = found
            return (
                f"it does not do the same work in all epochs: the loss of step {step} of {name} is "
                f"{other} in {where}, but {first} in the longest one"
            )
    return None


def _untimed_work(comparison: Figures, result: CellResult) -> str | None:
    """Return which call that is in no epoch's seconds takes too much of an epoch's, or None."""
    steady = comparison.steady(result)
    if steady is None:
        return None
    for name, calls in result.untimed.items():
        is_place = name == "place"
        epoch = steady.median / (comparison.batches(result) if is_place else 1)
        seconds = calls.seconds if result.cell.on_gpu else min(calls.seconds, calls.cpu_seconds)
        allowed = (
            UNTIMED_SECONDS
            + UNTIMED_ARRAY_SECONDS * calls.arrays
            + UNTIMED_COPIES * calls.copy_seconds
        )
        if seconds > max(allowed, MAX_UNTIMED_SHARE * epoch):
            of_what = ("a batch", "a step") if is_place else ("a call", "an epoch")
            return (
                f"{name}() takes {seconds:.2g} s for {of_what[0]}, outside of the timed epochs, "
                f"where {of_what[1]} takes {epoch:.2g} s and a copy of the same arrays "
                f"{calls.copy_seconds:.2g} s: work must not move there"
            )
    return None


def over_peak(comparison: Figures, result: CellResult) -> str | None:
    """Return that the cell is faster than the device can be, or None."""
    gflops, peak = comparison.gflops(result), comparison.peak(result)
    if gflops is None or peak is None or gflops <= MAX_PEAK_RATIO * peak.gflops:
        return None
    return (
        f"{gflops:.4g} GFLOP/s are more than {MAX_PEAK_RATIO:.0f} times the best matrix "
        f"multiplication on the device ({peak.gflops:.4g}): it cannot have done all the work"
    )
