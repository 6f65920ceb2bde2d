"""Prove and time the work that the parts of a training step are differences of, in a worker."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from statistics import median
from typing import Any

import numpy as np

from ..adapters.reference import ReferenceWorkload, global_norm
from ..models import Model, Weights
from ..models.parts import Part, Work
from ..results.parts import PartTime
from ..workload import Job, Workload
from .batches import ArrayBatches, draw_masks
from .checked import AdapterError
from .parity.differences import deviation as difference, norm
from .parity.expected import NEGLIGIBLE_GRADIENT
from .parity.tensors import cast
from .timing import timed, timed_without_delay

MIN_CALLS, MAX_CALLS, MIN_SECONDS = 3, 50, 0.1
"""How often a part's work is timed in a round, at least and at most, and for how many seconds."""
WARM_UP_CALLS = 2
"""Calls of new work before these: the first one may compile, the second one still be slower."""
PROOF_EXAMPLES = 8
"""Examples of the batch on which a gradient is proved."""
LATE_CALLS = 3
"""Calls after which it is asked whether the device goes on: it must after each to be at fault."""
MAX_LATE_SHARE, MAX_LATE_SECONDS = 0.25, 0.005
"""Share of a call, and seconds, for which the device may go on working after it returned, whichever
is larger."""


class PartTimer:
    """Time parts in a worker, each as the difference of two pieces of work, which take turns.

    build: returns the workload of a model. batch_size: of the work that names none.
    """

    def __init__(self, build: Callable[[Model], Workload], batch_size: int) -> None:
        self.build, self.batch_size = build, batch_size
        self.calls: dict[Work, Callable[[], Any]] = {}

    def time(self, part: Part, number: int) -> PartTime:
        """Return what the part takes, in the round of this number.

        Raises AdapterError where the device goes on after a call, or the gradients change then.
        """
        # the work of one part is mostly what the next one is compared with
        self.calls = {work: self.calls.get(work) or self._ready(work) for work in part.works}
        gc.collect()
        seconds: list[list[float]] = []
        while len(seconds) < MIN_CALLS or (
            sum(map(sum, seconds)) < MIN_SECONDS and len(seconds) < MAX_CALLS
        ):
            seconds.append([timed(self.calls[work])[1] for work in part.works])
        taken = median(turn[-1] - sum(turn[:-1]) for turn in seconds)
        whole = median(turn[-1] for turn in seconds)
        norm = None if part.whole.trains else self._gradient_norm(part.whole, whole)
        return PartTime(number, taken, whole, norm)

    def _ready(self, work: Work) -> Callable[[], Any]:
        """Return the work as a function that is compiled and warm."""
        workload = self.build(work.model)
        workload.load_weights(work.model.initial_weights(0))
        workload.place(examples(work.model, work.examples or self.batch_size, 0, "float32"))
        call: Callable[[], Any] = workload.train_epoch if work.trains else workload.backward_epoch
        for _ in range(WARM_UP_CALLS):
            fetch = call()
            if not work.trains:
                fetch()  # the first time may compile: it would look as if the device went on
        return call

    def _gradient_norm(self, work: Work, seconds: float) -> float | None:
        """Return the norm of all gradients together, if it is finite. seconds: of a call."""
        late = list[float]()
        for _ in range(LATE_CALLS):
            fetch = self.calls[work]()
            (first, taken), (again, idle) = (timed_without_delay(fetch) for _ in range(2))
            late.append(taken - idle)
            if any(not np.array_equal(first[name], again[name], equal_nan=True) for name in first):
                raise AdapterError(
                    "the gradients of backward_epoch() changed after it had returned"
                )
        if min(late) > max(MAX_LATE_SECONDS, MAX_LATE_SHARE * seconds):
            raise AdapterError(
                "backward_epoch() of the adapter was not over when it returned: the device went on "
                f"for {min(late):.2g} s"
            )
        found = global_norm(first)
        return found if math.isfinite(found) else None


def deviation(build: Callable[[Job], Workload], job: Job, work: Work) -> float | None:
    """Return how far the float64 gradients of the work are from the NumPy reference's.

    The largest ‖a - b‖ / ‖b‖ of all parameters; None where it is not finite. Dropout masks are
    given. Raises ValueError where gradients are missing or have other shapes.
    """
    job = replace(job, model=work.model, dtype="float64")
    for seed in count():
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
