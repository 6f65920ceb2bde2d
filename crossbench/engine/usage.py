"""Measure what a process uses and what the machine does meanwhile, from inside the process.

All figures come from counters that run anyway: they are read before and after an epoch, never
during it.
"""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import astuple, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pynvml

from ..host.control_group import throttled_seconds
from ..results.epochs import SystemActivity

RAPL = Path("/sys/class/powercap")
CPUS = Path("/sys/devices/system/cpu")
THREADS = Path("/proc/self/task")


@dataclass(frozen=True)
class ChildrenTimes:
    """Hold the CPU seconds, those of them in the kernel, and the page faults of the processes that
    this one started, and of those that they started.
    """

    cpu: float = 0.0
    system_cpu: float = 0.0
    page_faults: int = 0

    @classmethod
    def read(cls) -> ChildrenTimes:
        """Return what they took so far; page faults are known of those that have ended."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, system = ended.ru_utime + ended.ru_stime, ended.ru_stime
        for child in children():
            with suppress(psutil.Error):  # it has ended meanwhile
                times = child.cpu_times()
                cpu += times.user + times.system + times.children_user + times.children_system
                system += times.system + times.children_system
        return cls(cpu, system, ended.ru_minflt)

    def since(self, before: ChildrenTimes) -> ChildrenTimes:
        """Return what they took since an earlier reading."""
        return ChildrenTimes(
            max(0.0, self.cpu - before.cpu),
            max(0.0, self.system_cpu - before.system_cpu),
            max(0, self.page_faults - before.page_faults),
        )


def children() -> list[psutil.Process]:
    """Return the processes that this one started, and those that they started."""
    with suppress(psutil.Error):
        return psutil.Process().children(recursive=True)
    return []


@dataclass(frozen=True)
class Clock:
    """Measure wall and CPU seconds of this process (all its threads) since start(), and what the
    kernel did for it.
    """

    wall: float
    cpu: float
    system_cpu: float
    page_faults: int

    @classmethod
    def start(cls) -> Clock:
        kernel = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.perf_counter(), time.process_time(), kernel.ru_stime, kernel.ru_minflt)

    def seconds(self) -> tuple[float, float]:
        """Return the wall and the CPU seconds since start()."""
        return time.perf_counter() - self.wall, time.process_time() - self.cpu

    def kernel(self) -> tuple[float, int]:
        """Return the CPU seconds in the kernel and the minor page faults since start()."""
        now = resource.getrusage(resource.RUSAGE_SELF)
        return max(0.0, now.ru_stime - self.system_cpu), now.ru_minflt - self.page_faults


@dataclass(frozen=True)
class Counters:
    """Hold the machine's counters since some moment in the past; None where one does not exist."""

    busy_cpu_seconds: float | None
    own_cpu_seconds: float
    stolen_cpu_seconds: float | None
    throttled_seconds: float | None
    thermal_throttle_events: float | None
    cpu_joules: float | None
    gpu_joules: float | None

    @classmethod
    def read(cls, gpu: Any, children: float = 0.0) -> Counters:
        """Read all counters. gpu: NVML's handle, or None. children: CPU seconds of this process'
        own ones, which are no other processes.
        """
        busy, stolen = _cpu_seconds()
        joules = None if gpu is None else _gpu_joules(gpu)
        own = time.process_time() + children
        return cls(
            busy, own, stolen, throttled_seconds(), _throttle_events(), _cpu_joules(), joules
        )

    def activity_until(self, later: Counters) -> SystemActivity:
        """Return what the machine did between these counters and later ones."""
        busy, own, stolen, throttled, events, cpu, gpu = (
            None if a is None or b is None or b < a else b - a  # b < a: the counter has wrapped
            for a, b in zip(astuple(self), astuple(later), strict=True)
        )
        others = None if busy is None or own is None else max(0.0, busy - own)
        events = None if events is None else int(events)
        return SystemActivity(others, stolen, throttled, events, cpu, gpu)


def reset_peak_resident() -> None:
    """Reset the peak of the resident memory; without Linux it remains the peak since the start."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_resident() -> int:
    """Return the peak of the resident memory since reset_peak_resident, in bytes, with the peaks of
    the processes that this one started and that still run.
    """
    own = peak_of("self")
    if own is None:
        unit = 1 if sys.platform == "darwin" else 1024
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return own + sum(peak_of(child.pid) or 0 for child in children())


def peak_of(process: int | str) -> int | None:
    """Return the peak of a process' resident memory, in bytes; None without Linux."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def run_delay_seconds() -> float:
    """Return the seconds in which threads of this process were ready to run and had no CPU.

    0 where the system does not tell.
    """
    nanoseconds = 0
    with suppress(FileNotFoundError):  # no /proc
        for thread in os.listdir(THREADS):
            with suppress(OSError, ValueError, IndexError):  # the thread has ended
                nanoseconds += int((THREADS / thread / "schedstat").read_text().split()[1])
    return nanoseconds / 1e9


def cpus_allowed() -> int | None:
    """Return the number of CPUs that any thread of this process may run on.

    None where the system does not tell.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    cpus: set[int] = set()
    with suppress(FileNotFoundError):  # no /proc
        for thread in os.listdir(THREADS):
            with suppress(ProcessLookupError):  # the thread has ended
                cpus |= os.sched_getaffinity(int(thread))
    return len(cpus) or None


def _own_cpus() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _cpu_seconds() -> tuple[float | None, float | None]:
    """Return the busy and the stolen seconds of the CPUs that this process may use.

    They have the resolution of the kernel's ticks, 10 ms; None where the kernel does not report
    every one of these CPUs.
    """
    try:
        times = dict(zip(_cpu_numbers(), psutil.cpu_times(percpu=True), strict=False))
        own = [times[cpu] for cpu in _own_cpus()]
    except (OSError, psutil.Error, ValueError, LookupError):  # no /proc/stat, or an incomplete one
        return None, None
    kinds = ("user", "nice", "system", "irq", "softirq")  # user and nice include guests
    busy = sum(getattr(cpu, kind, 0.0) for cpu in own for kind in kinds)
    stolen = sum(cpu.steal for cpu in own) if hasattr(own[0], "steal") else None
    return busy, stolen


def _cpu_numbers() -> Iterable[int]:
    """Return the kernel's numbers of the CPUs, in psutil's order: some may be offline."""
    with suppress(FileNotFoundError):
        text = Path(psutil.PROCFS_PATH, "stat").read_text()
        return [int(number) for number in re.findall(r"^cpu(\d+) ", text, re.M)]
    return count()


def _throttle_events() -> float | None:
    """Return how often heat throttled the CPUs that this process may use; None where unknown."""
    found = None
    for cpu in _own_cpus():
        with suppress(OSError):
            count = CPUS / f"cpu{cpu}/thermal_throttle/core_throttle_count"
            found = (found or 0) + int(count.read_text())
    return found


def _cpu_joules() -> float | None:
    """Return the joules of all processor packages, or None: by default only root may read them."""
    found = None
    for domain in sorted(RAPL.glob("intel-rapl:*")):  # AMD's have the same name
        with suppress(OSError):
            if (domain / "name").read_text().startswith("package"):
                found = (found or 0.0) + int((domain / "energy_uj").read_text()) / 1e6
    return found


def _gpu_joules(gpu: Any) -> float | None:
    with suppress(pynvml.NVMLError):
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3
    return None
