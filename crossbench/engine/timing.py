"""Time an epoch, on a GPU repeatedly, each item of an iterator, and short calls.

Nothing else times a workload.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import astuple, replace
from statistics import fmean
from typing import Any, TypeVar

from ..results.epochs import Epoch, SystemActivity
from . import usage
from .tasks import WorkloadTask

T = TypeVar("T")

WARM_UP_SECONDS = 0.5
"""Seconds of untimed work before a steady epoch on a GPU, or of a runtime with figures of its own:
an idle GPU lowers its clocks within seconds, and the allocator may have given its memory back."""
MIN_TIMED_SECONDS = 1.0
"""Seconds of timed work there, at least: a LeNet epoch takes some tens of milliseconds on a GPU,
where NVML updates its figures a few times a second; a runtime collects its garbage as seldom."""
BUSY_RUNTIME_SECONDS, BUSY_RUNTIME_SHARE = 5.0, 0.05
"""Seconds where the runtime's own are more than this share of an epoch. In gpt_char Flux.jl spends
half of the time on garbage, and not evenly: six steps took 1.21 to 1.55 times their share of 200,
ten 0.87 to 1.05 times, twenty 0.93 to 1.04 times."""
MIN_CPU_SECONDS, MAX_CPU_REPEATS = 0.1, 50
"""Seconds of untimed and of timed work elsewhere, at least, and the most repetitions: an epoch of a
few small steps takes milliseconds, and any interruption would be most of it."""
MAX_SETTLING, MAX_SETTLING_SECONDS = 8, 20.0
"""Untimed epochs, and seconds, after which a steady epoch is timed, settled or not."""
SETTLED_STEPS, SETTLED_SECONDS = 20, 5.0
"""Steps and seconds of a first epoch in which a process has settled: an untimed one would take as
long. Before so many steps two epochs may be alike by chance: Julia's large collections are in the
first four steps of the LeNet, but in mnist_cnn they fall into each of the first three epochs of six
batches, which took 1.03 to 1.61 times what a long training takes."""
MAX_RUNTIME_SHARE, MAX_KERNEL_SHARE = 0.02, 0.05
"""Shares of an epoch by which the runtime's own seconds, and those of Linux' kernel, may change."""
MIN_IDLE_SECONDS = 0.25
"""Seconds that a device gets to end its work, at least; half of the work's where that is more."""


def timed_epoch(work: WorkloadTask, gpu: Any, number: int, epoch: int) -> tuple[Epoch, Any]:
    """Time one epoch from the workload's current state; return it, without losses, and its result.

    gpu: NVML's handle, or None.
    """
    gc.collect()
    children_before = usage.ChildrenTimes.read()
    before = usage.Counters.read(gpu, children_before.cpu)
    clock = usage.Clock.start()
    result = work.run()
    wall, cpu = clock.seconds()
    system_cpu, page_faults = clock.kernel()
    children_after = usage.ChildrenTimes.read()
    children = children_after.since(children_before)
    system_activity = before.activity_until(usage.Counters.read(gpu, children_after.cpu))
    figures = work.workload.epoch_figures()
    timed = Epoch(
        number,
        epoch,
        clock.wall,
        wall,
        cpu + children.cpu,
        [],
        figures,
        system_activity,
        system_cpu_seconds=system_cpu + children.system_cpu,
        page_faults=page_faults + children.page_faults,
    )
    return timed, result


def finite_or_none(values: Iterable[float]) -> list[float | None]:
    """Return the values, with None for those that are not finite: JSON has no NaN."""
    return [float(value) if math.isfinite(value) else None for value in values]


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the call's result and its wall seconds."""
    clock = usage.Clock.start()
    value = work()
    return value, clock.seconds()[0]


def timed_items(items: Iterable[T]) -> tuple[list[float], list[T]]:
    """Return the wall seconds that each item took to come, and the items."""
    seconds, found = list[float](), list[T]()
    gc.collect()
    iterator = iter(items)
    while True:
        clock = usage.Clock.start()
        try:
            item = next(iterator)
        except StopIteration:
            return seconds, found
        seconds.append(clock.seconds()[0])
        found.append(item)


def timed_without_delay(work: Callable[[], T]) -> tuple[T, float]:
    """Return the call's result and its wall seconds without those in which this process waited for
    a CPU: what other processes delay does not count.
    """
    delay = usage.run_delay_seconds()
    value, seconds = timed(work)
    return value, max(0.0, seconds - (usage.run_delay_seconds() - delay))


def idle_fetch_seconds(work: Callable[[], Callable[[], Any]], seconds: float) -> float:
    """Return the seconds of the first fetch of results that the device has computed long ago.

    The next fetch may be faster: an array may keep the values that came to the host.
    work: computes the results, and returns the function that fetches them. seconds: of the work.
    """
    fetch = work()
    time.sleep(max(MIN_IDLE_SECONDS, seconds / 2))
    return timed_without_delay(fetch)[1]


def runtime_seconds(epoch: Epoch) -> dict[str, float]:
    """Return the seconds that the runtime tells, such as those of its garbage collection."""
    return {name: value for name, value in epoch.figures.items() if name.endswith(" s")}


def has_settled(before: Epoch, epoch: Epoch) -> bool:
    """Return whether two epochs that follow one another are alike in what changes while a process
    settles: the runtime's own seconds, and those of Linux' kernel, most of them for page faults.
    """
    earlier = runtime_seconds(before)
    changes = [abs(now - earlier.get(n, 0.0)) for n, now in runtime_seconds(epoch).items()]
    kernel = abs(epoch.system_cpu_seconds - before.system_cpu_seconds)
    most_kernel = MAX_KERNEL_SHARE * max(epoch.wall_seconds, epoch.cpu_seconds)
    is_alike = max(changes, default=0.0) <= MAX_RUNTIME_SHARE * epoch.wall_seconds
    return is_alike and kernel <= most_kernel


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
        system_cpu_seconds=fmean(epoch.system_cpu_seconds or 0.0 for epoch in epochs),
        page_faults=fmean(epoch.page_faults or 0.0 for epoch in epochs),
        figures={name: fmean(epoch.figures[name] for epoch in epochs) for name in first.figures},
        system_activity=system_activity,
        repeats=len(epochs),
        untimed_seconds=max(0.0, last.started + last.wall_seconds - first.started - timed),
    )
