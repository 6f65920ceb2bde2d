"""Facts about this machine: its processor, its GPUs, and the CPUs that may be used."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import pynvml

from .results.records import Machine


def usable_cpus() -> list[int]:
    """The CPUs that this process may use, one of each physical core first."""
    if not hasattr(os, "sched_getaffinity"):  # macOS has none
        return list(range(os.cpu_count() or 1))
    first: list[int] = []
    siblings: list[int] = []
    cores: set[str] = set()
    for cpu in sorted(os.sched_getaffinity(0)):
        core = _core(cpu)
        (siblings if core in cores else first).append(cpu)
        cores.add(core)
    return first + siblings


def gpu_names() -> list[str]:
    """The NVIDIA GPUs, as the driver names them; none where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def gpu_handle() -> Any:
    """NVML's handle of the GPU that the frameworks take, the first that CUDA shows them; None
    where NVML does not know it.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        if first.isdigit():  # in the driver's order, which the workers' CUDA_DEVICE_ORDER asks for
            return pynvml.nvmlDeviceGetHandleByIndex(int(first))
        return pynvml.nvmlDeviceGetHandleByUUID(first)
    return None


def describe() -> Machine:
    libraries = ("numpy", "psutil")
    return Machine(
        cpu=_cpu_name(),
        cpus=len(usable_cpus()),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpu_names(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        libraries={name: metadata.version(name) for name in libraries},
    )


def _core(cpu: int) -> str:
    """What CPUs of one physical core have in common; the CPU itself where nothing is known."""
    with suppress(OSError):
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    return str(cpu)


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
