"""The one place where training is timed: an epoch, on a GPU again and again, and short calls."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable
from dataclasses import astuple, replace
from statistics import fmean
from typing import Any, TypeVar

from ..results.records import Epoch, Surroundings
from ..workload import Workload
from . import usage

T = TypeVar("T")

BUSY_SECONDS = 0.5
"""Seconds of untimed training before a steady epoch on a GPU: an idle GPU lowers its clocks within
seconds, and the allocator may have given its memory back."""
LEAST_SECONDS = 1.0
"""Seconds of timed training on a GPU, where a LeNet epoch takes some tens of milliseconds, and NVML
renews its figures a few times a second."""


def timed_epoch(workload: Workload, gpu: Any, number: int, epoch: int) -> Epoch:
    """Time one epoch from wherever the workload is. gpu: NVML's handle, or None."""
    gc.collect()
    before = usage.Counters.read(gpu)
    clock = usage.Clock.start()
    losses = workload.train_epoch()
    wall, cpu = clock.seconds()
    surroundings = before.until(usage.Counters.read(gpu))
    figures = workload.epoch_figures()
    return Epoch(number, epoch, clock.wall, wall, cpu, finite(losses), figures, surroundings)


def finite(losses: Iterable[float]) -> list[float | None]:
    """Return the losses as JSON holds them: None where one is not finite."""
    return [float(loss) if math.isfinite(loss) else None for loss in losses]


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what the call returns, and its wall seconds."""
    clock = usage.Clock.start()
    value = work()
    return value, clock.seconds()[0]


def repeated_epoch(
    workload: Workload, rewind: Callable[[], None], gpu: Any, number: int, epoch: int
) -> Epoch:
    """Time an epoch again and again until LEAST_SECONDS are timed, and return their mean.

    rewind: brings the workload to where the epoch begins; it is not timed.
    """
    busy = usage.Clock.start()
    while busy.seconds()[0] < BUSY_SECONDS:
        rewind()
        workload.train_epoch()
    epochs: list[Epoch] = []
    while sum(epoch.wall_seconds for epoch in epochs) < LEAST_SECONDS:
        rewind()
        epochs.append(timed_epoch(workload, gpu, number, epoch))
    return mean_epoch(epochs)


def mean_epoch(epochs: list[Epoch]) -> Epoch:
    """Return one epoch for several repetitions of it: means, and what the machine did in all."""
    first, last = epochs[0], epochs[-1]
    timed = sum(epoch.wall_seconds for epoch in epochs)
    surroundings = Surroundings(
        *(
            None if None in counts else sum(counts)
            for counts in zip(*(astuple(epoch.surroundings) for epoch in epochs), strict=True)
        )
    )
    return replace(
        first,
        wall_seconds=timed / len(epochs),
        cpu_seconds=fmean(epoch.cpu_seconds for epoch in epochs),
        figures={name: fmean(epoch.figures[name] for epoch in epochs) for name in first.figures},
        surroundings=surroundings,
        repeats=len(epochs),
        untimed_seconds=max(0.0, last.started + last.wall_seconds - first.started - timed),
    )


def best_seconds(work: Callable[[], None]) -> float:
    """Return the shortest of the calls of half a second, three at least, after one to warm up."""
    work()
    best, total, calls = math.inf, 0.0, 0
    while calls < 3 or total < 0.5:
        _, seconds = timed(work)
        best, total, calls = min(best, seconds), total + seconds, calls + 1
    return best
