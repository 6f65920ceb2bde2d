"""Describes this machine: its processor, its GPUs and the CPUs that this process may use."""

from __future__ import annotations

import math
import os
import platform
import re
import resource
import socket
from contextlib import suppress
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import psutil

from ..results.machine import Machine
from .control_group import cpu_quota, memory_left, memory_limit
from .gpus import find_gpus

BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
"""Flags of a processor that multiplies in bfloat16: x86's, and Arm's FEAT_BF16."""
CPU_INFO = Path("/proc/cpuinfo")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def usable_cpus() -> list[int]:
    """Return the indices of the CPUs this process may use, one of each physical core first."""
    if not hasattr(os, "sched_getaffinity"):  # macOS has no CPU affinity
        return list(range(os.cpu_count() or 1))
    first: list[int] = []
    siblings: list[int] = []
    cores: set[str] = set()
    for cpu in sorted(os.sched_getaffinity(0)):
        core = _core(cpu)
        (siblings if core in cores else first).append(cpu)
        cores.add(core)
    return first + siblings


def cpu_count() -> int:
    """Return how many CPUs this process may use at once: those of its affinity, or its control
    group's quota, rounded up, where that is smaller.
    """
    quota = cpu_quota()
    cpus = len(usable_cpus())
    return cpus if quota is None else min(cpus, math.ceil(quota))


def total_bytes() -> int:
    """Return the size of this machine's memory, or the limit of its control group's."""
    total: int = psutil.virtual_memory().total
    limit = memory_limit()
    return total if limit is None else min(total, limit)


def available_bytes() -> int:
    """Return the memory that is free or can be freed, within the limit of this control group."""
    available: int = psutil.virtual_memory().available
    left = memory_left()
    return available if left is None else min(available, left)


def describe(label: str | None = None, environment: dict[str, str] | None = None) -> Machine:
    """Return the description of this machine that the results file keeps.

    label: the name that the user gave it. environment: see Machine.
    """
    gpus = find_gpus()
    return Machine(
        cpu=_cpu_name(),
        cpus=cpu_count(),
        memory_bytes=total_bytes(),
        gpus=[gpu.name for gpu in gpus.known],
        gpu_problem=gpus.problem,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        libraries={name: metadata.version(name) for name in ("numpy", "psutil")},
        label=label,
        page_bytes=resource.getpagesize(),
        environment=environment or {},
        bfloat16_instructions=bfloat16_instructions(),
        available_bytes=max(1, available_bytes()),
        huge_pages=_huge_pages(),
    )


def named_for_machine(path: str | Path, label: str | None) -> Path:
    """Return the path with {machine} replaced by the label, or else by the host's name."""
    name = re.sub(r"[^\w.-]+", "-", label or socket.gethostname())
    return Path(str(path).replace("{machine}", name))


def processor_digest() -> str:
    """Return 16 hexadecimal digits that machines share whose processors run the same programs."""
    known = [platform.machine(), _cpu_name(), _cpu_flags() or ""]
    return sha256("\n".join(known).encode()).hexdigest()[:16]


def bfloat16_instructions() -> list[str] | None:
    """Return the processor's instructions that multiply in bfloat16, by their names in
    cpuinfo; None where the system does not list them.
    """
    flags = _cpu_flags()
    if flags is None:
        return None
    return [name for name in BFLOAT16_FLAGS if name in flags.split()]


def _cpu_flags() -> str | None:
    """Return the line of the processor's flags; None where the system has none."""
    with suppress(OSError):
        for line in CPU_INFO.read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return None


def _huge_pages() -> str | None:
    """Return when Linux gives huge pages, the word in brackets: "always [madvise] never"."""
    with suppress(OSError):
        if chosen := re.search(r"\[(\w+)\]", HUGE_PAGES.read_text()):
            return chosen[1]
    return None


def _core(cpu: int) -> str:
    """Return a key that the CPUs of one physical core share; the CPU's own index if unknown."""
    with suppress(OSError):
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    return str(cpu)


def _cpu_name() -> str:
    """Return the processor's name, on x86 with its family and model: "AMD EPYC" may be any."""
    with suppress(OSError):
        lines = CPU_INFO.read_text().partition("\n\n")[0].splitlines()
        first = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
        match first:
            case {"model name": name, "cpu family": family, "model": model}:
                return f"{name} (family {family}, model {model})"
            case {"model name": name}:
                return name
    return platform.processor() or platform.machine()
