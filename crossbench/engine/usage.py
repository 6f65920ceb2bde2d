"""What a process uses, read from inside it: the one clock, its memory and its CPUs."""

from __future__ import annotations

import os
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Clock:
    """Wall and CPU seconds of this process (all its threads), from the moment it is made."""

    wall: float
    cpu: float

    @classmethod
    def start(cls) -> Clock:
        return cls(time.perf_counter(), time.process_time())

    def seconds(self) -> tuple[float, float]:
        return time.perf_counter() - self.wall, time.process_time() - self.cpu


def reset_peak_resident() -> None:
    """Forget the peak so far; where the system cannot (not Linux), it stays since the start."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_resident() -> int:
    """The most resident memory since reset_peak_resident, in bytes."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def cpus_allowed() -> int | None:
    """On how many CPUs any thread of this process may run; None where the system cannot tell."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    cpus: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it ended meanwhile
            cpus |= os.sched_getaffinity(int(thread))
    return len(cpus)
