"""Reads the limits of this process' control group, such as a container's, and of those above."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
THROTTLED_TIME = {"throttled_usec": 1e6, "throttled_time": 1e9}
"""Name of the time that a quota throttled the group's threads, in version 2 and in version 1, and
the units in a second."""


def cpu_quota() -> float | None:
    """Return the smallest quota in CPUs, such as 1.5; None without one."""
    quotas = []
    for folder in _folders("cpu"):
        with suppress(OSError, ValueError):  # "max": no quota
            if (folder / "cpu.max").exists():
                time, period = map(int, (folder / "cpu.max").read_text().split())
            else:
                time = int((folder / "cpu.cfs_quota_us").read_text())
                period = int((folder / "cpu.cfs_period_us").read_text())
            if time > 0 < period:  # version 1 has -1 for none
                quotas.append(time / period)
    return min(quotas, default=None)


def memory_limit() -> int | None:
    """Return the smallest limit of memory in bytes; None without one."""
    limits = []
    for folder in _folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # "max": no limit
                limits.append(int((folder / name).read_text()))
    return min(limits, default=None)


def throttled_seconds() -> float | None:
    """Return the seconds that quotas throttled threads of the group, or of one above it that was
    throttled for longer; None where not reported.
    """
    found = []
    for folder in _folders("cpu"):
        with suppress(OSError):
            for line in (folder / "cpu.stat").read_text().splitlines():
                name, _, value = line.partition(" ")
                if name in THROTTLED_TIME:
                    found.append(int(value) / THROTTLED_TIME[name])
    return max(found, default=None)


def _folders(controller: str) -> Iterator[Path]:
    """Yield the folders where the group's files of a controller may be, then those above it.

    The group's line in OWN_CGROUPS is "0::GROUP" in version 2 and "1:cpu,cpuacct:GROUP" in version
    1; a container may see its own group as the root.
    """
    with suppress(OSError):
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "" or controller in controllers.split(","):
                root = CGROUPS / controllers
                folder = root / group.lstrip("/")
                yield folder
                while folder != root:
                    folder = folder.parent
                    yield folder
