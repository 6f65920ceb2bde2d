"""Run a timed epoch once more, untimed and in pieces, and compare it with what the clock saw.

A timed epoch is one call. Whatever depends on where in that call a step is (a loop that drops its
last batches, a cache that is hit too often, an iterator that ends early) has other losses and other
weights where the same batches come in calls of one or a few.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ..results.replay import NOT_FINITE, Replay
from ..workload import Batches
from .batches import BatchList
from .checked import AdapterError
from .epoch_start import EpochStart
from .sketch import Sketches, difference, norm
from .tasks import WorkloadTask
from .timing import finite_or_none
from .usage import Clock

MAX_BATCHES = 3
"""The most batches of a call."""
NAMED_SHARE = 0.1
"""The first step is named whose deviation is this share of the largest: what goes wrong in a step
moves the later ones too."""
LONG_SECONDS = 10.0
"""Seconds of an epoch, with those before it that it goes on from, above which only its first steps
are run again: as many as take so long, on average."""


@dataclass(frozen=True)
class TimedRun:
    """Hold where a timed epoch, or a repetition of one, started and what it computed.

    repetition: from 1. scale: of the initial weights that it, or the epochs that it goes on from,
    started from. steps: (steps, n), see WorkloadTask.fingerprints. change: of each parameter in the
    epoch; empty where the task changes none.
    """

    epoch: int
    repetition: int
    scale: float
    steps: np.ndarray
    change: Sketches
    wall_seconds: float


class Replayer:
    """Run timed epochs of one workload again. batches: all of an epoch."""

    def __init__(self, work: WorkloadTask, starts: EpochStart, batches: Batches) -> None:
        self.work, self.starts, self.batches = work, starts, batches
        self.random = random.SystemRandom()

    def replay(self, runs: list[TimedRun], number: int) -> Replay:
        """Run an epoch that round `number` timed again, and return how far it is from that.

        Which one of the longest, and how many batches each call takes, is drawn by chance now.
        Afterwards the workload has other weights and other batches.
        """
        clock = Clock.start()
        known = [run for run in runs if self._seconds_before(run) < LONG_SECONDS]
        longest = max(len(run.steps) for run in known)
        run = self.random.choice([run for run in known if len(run.steps) == longest])
        self.starts.rewind(run.epoch, run.scale)
        before = self.starts.change(run.scale) if self._seconds_before(run) else {}
        count = self._count(run)
        steps = np.concatenate([self.work.fingerprints(result) for result in self._pieces(count)])
        deviations = [_deviation(*pair) for pair in zip(run.steps, steps, strict=False)]
        odd = next(i for i, size in enumerate(deviations) if size >= NAMED_SHARE * max(deviations))
        weights = None
        if self.work.continues and count == len(run.steps):
            change = difference(self.starts.change(run.scale), before)
            weights = change_distance(run.change, change)
        timed, again = finite_or_none((run.steps[odd, 0], steps[odd, 0]))
        return Replay(
            number,
            len(runs),
            run.epoch,
            run.repetition,
            count,
            odd + 1,
            timed if self.work.continues else None,
            again if self.work.continues else None,
            deviations[odd],
            weights,
            clock.seconds()[0],
        )

    def _seconds_before(self, run: TimedRun) -> float:
        """Return the seconds of the epochs that a run goes on from, about."""
        return run.wall_seconds * max(0, run.epoch - 1) if self.work.continues else 0.0

    def _count(self, run: TimedRun) -> int:
        """Return how many steps of a run to take: all, or the first ones of a long one."""
        steps = len(run.steps)
        if run.wall_seconds <= LONG_SECONDS:
            return steps
        mean = steps * LONG_SECONDS / run.wall_seconds
        return self.random.randint(1, max(1, min(steps, int(2 * mean))))

    def _pieces(self, count: int) -> Iterator[Any]:
        """Yield the results of the first `count` steps, in calls of a few batches each."""
        left = islice(self.batches, count)
        while batches := list(islice(left, self.random.randint(1, MAX_BATCHES))):
            self.work.workload.place(BatchList(batches, self.batches.streamed))
            try:
                yield self.work.run()
            except AdapterError as error:
                raise AdapterError(f"{error}, where a timed epoch was run again") from None


def _deviation(timed: np.ndarray, again: np.ndarray) -> float:
    """Return ‖a - b‖ / ‖b‖ of a step."""
    if np.array_equal(timed, again, equal_nan=True):
        return 0.0
    return _bounded(float(np.linalg.norm(timed - again)), float(np.linalg.norm(again)))


def change_distance(timed: Sketches, again: Sketches) -> float:
    """Return the distance of two changes of the weights, relative to the first one."""
    if all(np.array_equal(timed[name], again[name], equal_nan=True) for name in timed):
        return 0.0
    return _bounded(norm(difference(timed, again)), norm(timed))


def _bounded(distance: float, size: float) -> float:
    """Return distance / size, or NOT_FINITE."""
    ratio = distance / size if size else math.inf
    return min(ratio, NOT_FINITE) if math.isfinite(ratio) else NOT_FINITE
