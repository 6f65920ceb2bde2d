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
MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Names of a group's limit and of what it uses, in version 2 and in version 1, and of the files'
contents in memory.stat that the kernel can drop."""


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
    return min((limit for limit, _ in _memory_limits()), default=None)


def memory_left() -> int | None:
    """Return the bytes that the group, and each above it, may still take; None without a limit."""
    return min((limit - used for limit, used in _memory_limits()), default=None)


def _memory_limits() -> Iterator[tuple[int, int]]:
    """Yield each limit of memory and what is used of it, without what the kernel can drop."""
    for folder in _folders("memory"):
        for limit, used, dropped in MEMORY_FILES:
            with suppress(OSError, ValueError):  # "max": no limit
                yield int((folder / limit).read_text()), _used(folder / used, dropped)


def _used(file: Path, dropped: str) -> int:
    """Return the bytes in a file, without those of a line of memory.stat; 0 if it is missing."""
    used = 0
    with suppress(OSError):
        used = int(file.read_text())
        for line in (file.parent / "memory.stat").read_text().splitlines():
            if line.startswith(f"{dropped} "):
                used -= int(line.split()[1])
    return max(0, used)


def throttled_seconds() -> float | None:
    """Return the seconds that quotas of the group, and of those above it, throttled it, added up
    over the CPUs; None where not reported.
    """
    found = []
    for folder in _folders("cpu"):
        with suppress(OSError):
            for line in (folder / "cpu.stat").read_text().splitlines():
                name, _, value = line.partition(" ")
                if name in THROTTLED_TIME:
                    found.append(int(value) / THROTTLED_TIME[name])
    return sum(found) if found else None


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
