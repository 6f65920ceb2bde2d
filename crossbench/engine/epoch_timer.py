"""Time the epochs of a round in a worker, and keep what each of them computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..models import Weights
from ..results.doubts import is_late
from ..results.epochs import Epoch
from . import usage
from .checked import AdapterError
from .epoch_start import EpochStart
from .mapped import release
from .replay import TimedRun
from .sketch import Sketches, difference
from .tasks import WorkloadTask
from .timing import (
    BUSY_RUNTIME_SECONDS,
    BUSY_RUNTIME_SHARE,
    MAX_CPU_REPEATS,
    MAX_SETTLING,
    MAX_SETTLING_SECONDS,
    MIN_CPU_SECONDS,
    MIN_TIMED_SECONDS,
    SETTLED_SECONDS,
    SETTLED_STEPS,
    WARM_UP_SECONDS,
    finite_or_none,
    has_settled,
    idle_fetch_seconds,
    mean_epoch,
    runtime_seconds,
    timed_epoch,
    timed_without_delay,
)

LATE_EPOCHS = 3
"""How often an epoch on a CPU that seems to go on after it returned is run again, at most."""


class EpochTimer:
    """Time the epochs of one round, one after the other.

    on_gpu: whether the workload is on a GPU. gpu: NVML's handle, or None. runs: what was timed.
    last: the epoch that was run last, timed or untimed.
    """

    def __init__(self, work: WorkloadTask, starts: EpochStart, on_gpu: bool, gpu: Any) -> None:
        self.work, self.starts, self.on_gpu, self.gpu = work, starts, on_gpu, gpu
        self.runs: list[TimedRun] = []
        self.peak_resident = 0
        self.last: Epoch | None = None

    def time(self, number: int, epoch: int) -> tuple[Epoch, Any]:
        """Time an epoch (0 is the round's first), and check that it was over when it returned.

        A steady epoch is one after which the next would take as long, so the process settles before
        the first of them, and on a GPU before each. A short one is repeated, each time from other
        weights; its seconds are the mean, its losses those of the first repetition, whose result
        is returned beside it. Afterwards the workload is in the state that this one left.
        """
        scale = self.starts.scale(epoch)
        if epoch > 0 and (self.on_gpu or (epoch == 1 and not self._is_ready())):
            self._settle(epoch)
            self.starts.rewind(epoch, scale)
        else:
            self.starts.go_on(epoch)
        before = self._change_before(epoch, scale)
        release(self.starts.initial.values())
        usage.reset_peak_resident()
        timed, result = timed_epoch(self.work, self.gpu, number, epoch)
        self.peak_resident = max(self.peak_resident, usage.peak_resident())
        weights, finished = self._finished(timed, scale)
        self._keep(timed, 1, scale, before, result, weights)
        epochs = [timed, *self._repetitions(timed)]
        if (self.on_gpu and epoch > 0) or len(epochs) > 1:
            self.starts.rewind(epoch, scale)
            self.work.run()
        if self.on_gpu:  # not before the repetitions, one of which would allocate it in its time
            self.work.workload.free_memory()
        losses = finite_or_none(self.work.losses(result))
        self.last = replace(mean_epoch(epochs), losses=losses, **finished)
        return self.last, result

    @property
    def _is_slow_to_settle(self) -> bool:
        """Return whether an epoch is on a GPU, or in a runtime that tells seconds of its own."""
        return self.on_gpu or (self.last is not None and bool(runtime_seconds(self.last)))

    def _is_ready(self) -> bool:
        """Return whether a steady epoch can follow the first one without one that is not timed: of
        another length it may be another program, which is compiled when it first runs.
        """
        return self._has_settled() and self._is_as_long

    @property
    def _is_as_long(self) -> bool:
        """Return whether the last epoch took as many steps as the next one."""
        return self.last is not None and self.last.steps == self.starts.steps

    def _has_settled(self) -> bool:
        """Return whether the first epoch was so long that the process has settled in it, or that
        nobody waits for another one that is not timed.
        """
        if self.last is None:
            return False
        seconds = self.last.wall_seconds
        is_settled = self.last.steps >= SETTLED_STEPS and seconds >= SETTLED_SECONDS
        return is_settled or seconds > MAX_SETTLING_SECONDS

    def _settle(self, epoch: int) -> None:
        """Run untimed epochs until two that follow one another are alike.

        The next one is timed, and counts whatever it holds: one that was chosen because it holds no
        garbage collection, or because it does, would be no fair sample. Where the runtime takes
        much of an epoch, two may be alike by chance in the first steps: see SETTLED_STEPS.
        """
        clock = usage.Clock.start()
        steps = 0 if self.last is None else self.last.steps
        is_alike = self._is_as_long  # else they cannot be compared
        is_settled = self.last is None or (self._has_settled() and not is_alike)
        for _ in range(MAX_SETTLING):
            untimed = list(self._warm_up(epoch))
            before, self.last = self.last, mean_epoch(untimed)
            steps += self.starts.steps * len(untimed)
            is_early = _is_busy(self.last) and steps < SETTLED_STEPS
            if is_alike and before is not None and not is_early:
                is_settled = is_settled or has_settled(before, self.last)
            is_alike = True
            if is_settled or clock.seconds()[0] > MAX_SETTLING_SECONDS:
                break

    def _warm_up(self, epoch: int) -> Iterator[Epoch]:
        """Run a steady epoch untimed, from other weights each time, for a while."""
        clock = usage.Clock.start()
        enough = WARM_UP_SECONDS if self._is_slow_to_settle else MIN_CPU_SECONDS
        most = math.inf if self.on_gpu else MAX_CPU_REPEATS
        seconds, repetition = 0.0, 0
        while repetition == 0 or (seconds < enough and repetition < most):
            repetition += 1
            self._repeat(epoch)
            yield timed_epoch(self.work, self.gpu, 1, epoch)[0]
            seconds = clock.seconds()[0]

    def _repetitions(self, timed: Epoch) -> Iterator[Epoch]:
        """Time a short steady epoch again, from other weights each time, until it is long enough.

        MIN_TIMED_SECONDS must be timed of what settles slowly, or BUSY_RUNTIME_SECONDS, else
        MIN_CPU_SECONDS; on a CPU MAX_CPU_REPEATS are enough. The epoch before decides: were it the
        timed one, those without a collection would be short, and count as much as the others.
        """
        enough = MIN_TIMED_SECONDS if self._is_slow_to_settle else MIN_CPU_SECONDS
        if self.last and _is_busy(self.last):
            enough = BUSY_RUNTIME_SECONDS
        most = math.inf if self.on_gpu else MAX_CPU_REPEATS
        seconds, repetition = timed.wall_seconds, 1
        while timed.epoch > 0 and seconds < enough and repetition < most:
            repetition += 1
            scale = self._repeat(timed.epoch)
            before = self._change_before(timed.epoch, scale)
            again, result = timed_epoch(self.work, self.gpu, timed.round, timed.epoch)
            seconds += again.wall_seconds
            weights = self.work.workload.weights() if self.work.continues else {}
            self._keep(again, repetition, scale, before, result, weights)
            yield again

    def _repeat(self, epoch: int) -> float:
        """Bring the workload to the start of a steady epoch, from weights of its own each time.

        Returns what the initial weights are multiplied by.
        """
        scale = self.starts.other_scale()
        self.starts.rewind(epoch, scale)
        return scale

    def _again(self, epoch: int) -> Callable[[], Weights]:
        """Run a steady epoch once more; return what fetches its weights."""
        self._repeat(epoch)
        self.work.run()
        return self.work.workload.weights

    def _change_before(self, epoch: int, scale: float) -> Sketches:
        """Return the change of the weights in the epochs that this one goes on from."""
        return self.starts.change(scale) if self.work.continues and epoch > 1 else {}

    def _keep(
        self,
        timed: Epoch,
        repetition: int,
        scale: float,
        before: Sketches,
        result: Any,
        weights: Weights,
    ) -> None:
        """Keep what a repetition of an epoch computed. weights: those that it left."""
        change = difference(self.starts.change(scale, weights), before)
        steps = self.work.fingerprints(result)
        run = TimedRun(timed.epoch, repetition, scale, steps, change, timed.wall_seconds)
        self.runs.append(run)

    def _finished(self, timed: Epoch, scale: float) -> tuple[Weights, dict[str, Any]]:
        """Return the weights that an epoch left, and whether it was over when it returned, as the
        fields of Epoch for that; no weights and no fields where it predicted.

        Raises AdapterError where a prediction changed the weights.
        """
        workload = self.work.workload
        if not self.work.continues:
            self._check_unchanged(scale)
            return {}, {}
        (first, seconds), (again, idle_seconds) = (
            timed_without_delay(workload.weights) for _ in range(2)
        )
        late = seconds - idle_seconds
        if self.on_gpu and timed.epoch > 0:
            idle = idle_fetch_seconds(partial(self._again, timed.epoch), timed.wall_seconds)
            late = min(late, seconds - idle)
        elif timed.epoch > 0 and is_late(late, timed.wall_seconds):
            late = min(late, self._late_again(timed))
            self.starts.rewind(timed.epoch, scale)
            self.work.run()
        changed = any(not np.array_equal(first[n], again[n], equal_nan=True) for n in first)
        return again, {
            "late_seconds": max(0.0, late),
            "still_training": changed,
        }

    def _late_again(self, timed: Epoch) -> float:
        """Run a steady epoch again until no work goes on after it, or a few times; return for how
        many seconds it does. What disturbs one fetch does not disturb all of them.
        """
        late = math.inf
        for _ in range(LATE_EPOCHS):
            fetch = self._again(timed.epoch)
            (_, seconds), (_, idle_seconds) = (timed_without_delay(fetch) for _ in range(2))
            late = min(late, seconds - idle_seconds)
            if not is_late(late, timed.wall_seconds):
                break
        return late

    def _check_unchanged(self, scale: float) -> None:
        """Raise AdapterError where the weights are not those that the last epoch started from."""
        now = self.work.workload.weights()
        for name, array in self.starts.weights(scale).items():
            if not np.array_equal(array, now[name], equal_nan=True):
                raise AdapterError(f"predict_epoch() of the adapter changed {name}")


def _is_busy(epoch: Epoch) -> bool:
    """Return whether the runtime's own seconds are a large share of an epoch."""
    return sum(runtime_seconds(epoch).values()) > BUSY_RUNTIME_SHARE * epoch.wall_seconds
