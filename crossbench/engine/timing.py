"""Time training: an epoch, on a GPU repeatedly, and short calls. Nothing else times training."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable
from dataclasses import astuple, replace
from statistics import fmean
from typing import Any, TypeVar

from ..results.records import Epoch, SystemActivity
from ..workload import Workload
from . import usage

T = TypeVar("T")

WARM_UP_SECONDS = 0.5
"""Seconds of untimed training before a steady epoch on a GPU: an idle GPU lowers its clocks within
seconds, and the allocator may have given its memory back."""
MIN_TIMED_SECONDS = 1.0
"""Seconds of timed training on a GPU, at least: a LeNet epoch takes some tens of milliseconds
there, and NVML updates its figures only a few times a second."""


def timed_epoch(workload: Workload, gpu: Any, number: int, epoch: int) -> Epoch:
    """Time one epoch from the workload's current state. gpu: NVML's handle, or None."""
    gc.collect()
    before = usage.Counters.read(gpu)
    clock = usage.Clock.start()
    losses = workload.train_epoch()
    wall, cpu = clock.seconds()
    system_activity = before.activity_until(usage.Counters.read(gpu))
    figures = workload.epoch_figures()
    return Epoch(
        number, epoch, clock.wall, wall, cpu, finite_or_none(losses), figures, system_activity
    )


def finite_or_none(values: Iterable[float]) -> list[float | None]:
    """Return the values, with None for those that are not finite: JSON has no NaN."""
    return [float(value) if math.isfinite(value) else None for value in values]


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the call's result and its wall seconds."""
    clock = usage.Clock.start()
    value = work()
    return value, clock.seconds()[0]


def timed_without_delay(work: Callable[[], T]) -> tuple[T, float]:
    """Return the call's result and its wall seconds without those in which this process waited for
    a CPU: what other processes delay does not count.
    """
    delay = usage.run_delay_seconds()
    value, seconds = timed(work)
    return value, max(0.0, seconds - (usage.run_delay_seconds() - delay))


def repeated_epoch(
    workload: Workload, rewind: Callable[[], None], gpu: Any, number: int, epoch: int
) -> Epoch:
    """Warm up, then time an epoch until MIN_TIMED_SECONDS are timed, and return the mean.

    rewind: brings the workload to the state that the epoch starts from; it is not timed.
    """
    warm_up = usage.Clock.start()
    while warm_up.seconds()[0] < WARM_UP_SECONDS:
        rewind()
        workload.train_epoch()
    epochs: list[Epoch] = []
    while sum(epoch.wall_seconds for epoch in epochs) < MIN_TIMED_SECONDS:
        rewind()
        epochs.append(timed_epoch(workload, gpu, number, epoch))
    return mean_epoch(epochs)


def mean_epoch(epochs: list[Epoch]) -> Epoch:
    """Return the mean of an epoch's repetitions, with the sum of their system activity."""
    first, last = epochs[0], epochs[-1]
    timed = sum(epoch.wall_seconds for epoch in epochs)
    system_activity = SystemActivity(
        *(
            None if None in counts else sum(counts)
            for counts in zip(*(astuple(epoch.system_activity) for epoch in epochs), strict=True)
        )
    )
    return replace(
        first,
        wall_seconds=timed / len(epochs),
        cpu_seconds=fmean(epoch.cpu_seconds for epoch in epochs),
        figures={name: fmean(epoch.figures[name] for epoch in epochs) for name in first.figures},
        system_activity=system_activity,
        repeats=len(epochs),
        untimed_seconds=max(0.0, last.started + last.wall_seconds - first.started - timed),
    )


def best_seconds(work: Callable[[], None]) -> float:
    """Return the seconds of the fastest call.

    After one warm-up call, it calls for half a second, at least three times.
    """
    work()
    best, total, calls = math.inf, 0.0, 0
    while calls < 3 or total < 0.5:
        _, seconds = timed(work)
        best, total, calls = min(best, seconds), total + seconds, calls + 1
    return best
