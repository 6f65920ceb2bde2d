"""Prove and time the parts of a training step, in a worker, and describe them for a results file.

A part is the difference of two pieces of work.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

import numpy as np

from ..adapters.reference import ReferenceWorkload, global_norm
from ..models import Model, Weights
from ..models.parts import LOSS, OPTIMIZER, Part, Work
from ..results import parts as records
from ..results.parts import PartTime
from ..results.roofline import part_bytes
from ..workload import Job, Workload
from .batches import ArrayBatches, draw_masks
from .checked import AdapterError
from .parity.examples import seeds
from .parity.expected import NEGLIGIBLE_GRADIENT
from .parity.tensors import cast, deviation as difference, norm
from .timing import idle_fetch_seconds, timed, timed_without_delay

MIN_PASSES, MAX_PASSES = 3, 25
"""How often each piece of work is timed in both orders in a round."""
MIN_SECONDS, LONG_SECONDS = 0.1, 1.0
"""Seconds for which each is timed at least, on the average, until MAX_PASSES; and seconds after
which MIN_PASSES are not waited for."""
PROOF_EXAMPLES = 8
"""Examples of the batch on which a gradient is proved."""
LATE_CALLS = 3
"""Calls after which it is asked whether the device goes on: it must after each to be at fault."""
MAX_LATE_SHARE, MAX_LATE_SECONDS = 0.25, 0.005
"""Share of a call, and seconds, for which the device may go on working after it returned, whichever
is larger."""


def described(parts: Sequence[Part]) -> list[records.PartCost]:
    """Return the parts as a results file has them."""
    return [_described(part) for part in parts]


def _described(part: Part) -> records.PartCost:
    if part.name in (LOSS, OPTIMIZER):
        return records.PartCost(part.name, part.count, 0, 0.0, 0.0)
    flops = [work.model.training_flops for work in part.works]
    moved = [part_bytes(work.model.description()) for work in part.works]
    return records.PartCost(
        part.name,
        part.count,
        flops[-1] - sum(flops[:-1]),
        *(values[-1] - sum(values[:-1]) for values in zip(*moved, strict=True)),
    )


class PartTimer:
    """Time parts in a worker, each as the difference of two pieces of work, which take turns.

    build: returns the workload of a model. batch_size: of the work that names none.
    """

    def __init__(self, build: Callable[[Model], Workload], batch_size: int) -> None:
        self.build, self.batch_size = build, batch_size

    def time(self, group: Sequence[Part], number: int) -> list[PartTime]:
        """Return what each part of a group takes, in the round of this number.

        The pieces of work are called one after the other, up from the least and down again: what is
        subtracted was timed right beside, and neither a drift nor what one call leaves to the next
        makes a part longer. Raises AdapterError where the device goes on after a call, or the
        gradients change then.
        """
        first = group[0].before
        works = [*([first] if first else []), *(part.whole for part in group)]
        pairs = [(work, self._compiled(work)) for work in works]
        # the second calls, when all are built: a new workload may empty the caches of the others
        for pair in pairs:
            _warm_up(*pair)
        gc.collect()
        passes: list[list[float]] = []
        while len(passes) < MAX_PASSES:
            up, down = ([_timed(*pair) for pair in order] for order in (pairs, pairs[::-1]))
            calls = list(zip(up, down[::-1], strict=True))
            passes.append([fmean(call.seconds for call in pair) for pair in calls])
            total = 2 * sum(map(sum, passes))
            enough = len(passes) >= MIN_PASSES or total > LONG_SECONDS
            if enough and total > MIN_SECONDS * len(works):
                break
        whole = [median(of_work) for of_work in zip(*passes, strict=True)]
        added = [median(p[i] - p[i - 1] for p in passes) for i in range(1, len(works))]
        last = [second for _, second in calls]  # of each work: its gradients are still there
        norms = [call.gradient_norm() for call in last]
        collecting = [call.collect_seconds for call in last]
        times = zip((whole[0], *added), whole, norms, collecting, strict=True)
        return [PartTime(number, *figures) for figures in times][-len(group) :]

    def _compiled(self, work: Work) -> Workload:
        """Return the workload of the work, after its first call."""
        workload = self.build(work.model)
        workload.load_weights(work.model.initial_weights(0))
        workload.place(examples(work.model, work.examples or self.batch_size, 0, "float32"))
        if work.trains:
            workload.train_epoch()
        else:
            workload.backward_epoch()()  # the first fetch may compile: as if the device went on
        return workload


@dataclass(frozen=True)
class TimedCall:
    """Hold a call of a piece of work. fetch: of its gradients, until the next call; None where it
    trains. collect_seconds: of the collection before it.
    """

    seconds: float
    collect_seconds: float
    fetch: Callable[[], Weights] | None

    def gradient_norm(self) -> float | None:
        """Return the norm of all its gradients together, if it has some and it is finite."""
        found = global_norm(self.fetch()) if self.fetch else math.inf
        return found if math.isfinite(found) else None


def _timed(work: Work, workload: Workload) -> TimedCall:
    """Time a call, after a collection of what the calls before it left."""
    _, collecting = timed(workload.collect_garbage)
    if work.trains:
        return TimedCall(timed(workload.train_epoch)[1], collecting, None)
    fetch, seconds = timed(workload.backward_epoch)
    return TimedCall(seconds, collecting, fetch)


def _warm_up(work: Work, workload: Workload) -> None:
    """Call the work once more, and check that it is over when it returns."""
    if work.trains:
        workload.train_epoch()
    else:
        _check_finished(workload)


def _check_finished(workload: Workload) -> None:
    """Raise AdapterError as PartTimer.time does."""
    late = list[float]()
    while len(late) < LATE_CALLS:
        fetch, seconds = timed(workload.backward_epoch)
        (first, taken), (again, idle) = (timed_without_delay(fetch) for _ in range(2))
        bound = max(MAX_LATE_SECONDS, MAX_LATE_SHARE * seconds)
        if taken - idle > bound:
            idle = max(idle, idle_fetch_seconds(workload.backward_epoch, seconds))
        late.append(taken - idle)
        if any(not np.array_equal(first[name], again[name], equal_nan=True) for name in first):
            raise AdapterError("the gradients of backward_epoch() changed after it had returned")
        if late[-1] <= bound:
            return
    raise AdapterError(
        "backward_epoch() of the adapter was not over when it returned: the device went on for "
        f"{min(late):.2g} s"
    )


def deviation(build: Callable[[Job], Workload], job: Job, work: Work) -> float | None:
    """Return how far the float64 gradients of the work are from the NumPy reference's.

    The largest ‖a - b‖ / ‖b‖ of all parameters; None where it is not finite. Dropout masks are
    given. Raises ValueError where gradients are missing or have other shapes.
    """
    job = replace(job, model=work.model, dtype="float64")
    for seed in seeds(work.model):
        batches = examples(work.model, PROOF_EXAMPLES, seed, "float64", with_masks=True)
        weights = cast(work.model.initial_weights(seed), "float64")
        reference = ReferenceWorkload(job)
        expected = _gradients(reference, weights, batches)
        if not reference.near_ties:
            break
    found = _gradients(build(job), weights, batches)
    if {n: a.shape for n, a in found.items()} != {n: a.shape for n, a in expected.items()}:
        raise ValueError("the gradients have other names or shapes than the reference's")
    whole = global_norm(expected)
    deviations = []
    for name, array in expected.items():
        scale = norm(name, array)
        is_rounding = scale < NEGLIGIBLE_GRADIENT * whole
        deviations.append(difference(name, found[name], array, whole if is_rounding else scale))
    return None if None in deviations else max(d for d in deviations if d is not None)


def examples(
    model: Model, size: int, seed: int, dtype: str, with_masks: bool = False
) -> ArrayBatches:
    """Return one batch of random examples, the numbers from -0.5 to 0.5."""
    random = np.random.default_rng([seed, 69])

    def draw(shape: tuple[int, ...], below: int | None, kind: type) -> np.ndarray:
        if below is None:
            return random.random((1, size, *shape), np.float32).astype(dtype) - np.array(0.5, dtype)
        return random.integers(0, below, (1, size, *shape), kind)

    inputs = draw(model.input_shape, model.vocabulary, np.int32)
    labels = draw(model.label_shape, model.classes, np.int64)
    masks = draw_masks(model, 1, size, random) if with_masks else {}
    return ArrayBatches(inputs, labels, masks or None)


def _gradients(workload: Workload, weights: Weights, batches: ArrayBatches) -> Weights:
    workload.load_weights(weights)
    workload.place(batches)
    return workload.backward_epoch()()
