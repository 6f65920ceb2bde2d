"""What a worker and the GPU are doing, watched from the parent while an epoch runs.

For what no counter of usage.py adds up: the cores in use at a time, and a GPU's use, memory, power
and clock. A sample reads two files and, for a GPU, some NVML values; what that costs is recorded.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import psutil
import pynvml

from ..results.records import Epoch, Usage
from .timing import LEAST_SECONDS

INTERVAL = 0.1
"""Seconds between samples."""
GAP = 0.5
"""Seconds between samples that are taken for a stop: the sampler's own process did not run either.
"""
LEAST_SHARE = 0.8
"""The share of the span that must have been timed for a GPU's use and power to be given: NVML's
figures are means of up to a second, and include what happens between the repetitions."""
THROTTLING = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "thermal slowdown",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "thermal slowdown by the hardware",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
}
"""The reasons for a lower clock that are not the user's or an idle GPU's."""


@dataclass(frozen=True)
class GpuSample:
    """What NVML tells at one moment; None where it does not. busy: a fraction. memory: bytes that
    the process holds. throttling: bits of THROTTLING.
    """

    busy: float | None = None
    memory: int | None = None
    watts: float | None = None
    megahertz: float | None = None
    throttling: int = 0


@dataclass(frozen=True)
class Sample:
    """at: of time.perf_counter, which all processes of a machine share."""

    at: float
    cpu_seconds: float
    resident: int
    stopped: bool
    gpu: GpuSample = GpuSample()


class Sampler:
    """Samples a process in a thread of its own, for as long as the context lasts.

    gpu: NVML's handle of the GPU that the process uses, or None.
    """

    def __init__(self, pid: int, gpu: Any = None, interval: float | None = None) -> None:
        self.pid, self.interval = pid, INTERVAL if interval is None else interval
        self.gpu = gpu
        self.samples: list[Sample] = []
        self.cost = 0.0
        self.end = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self.start = time.perf_counter()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        self.thread.join()
        self.seconds = time.perf_counter() - self.start

    def usage(self, epoch: Epoch) -> Usage | None:
        """Return what was sampled while the epoch ran; None where nothing was."""
        end = epoch.started + epoch.span_seconds
        within = [sample for sample in self.samples if epoch.started <= sample.at <= end]
        if not within:
            return None
        cores = [
            (later.cpu_seconds - sample.cpu_seconds) / (later.at - sample.at)
            for sample, later in itertools.pairwise(within)
        ]
        gpu = [sample.gpu for sample in within]
        timed = epoch.timed_seconds >= max(LEAST_SECONDS, LEAST_SHARE * epoch.span_seconds)
        megahertz = _known(sample.megahertz for sample in gpu)
        throttling = {
            reason for bit, reason in THROTTLING.items() for s in gpu if s.throttling & bit
        }
        return Usage(
            round=epoch.round,
            samples=len(within),
            sampler_cores=self.cost / self.seconds,
            cores_peak=max(cores, default=None),
            resident_peak=max(s.resident for s in within),
            gpu_busy=_mean(s.busy for s in gpu) if timed else None,
            gpu_memory_peak=max(_known(s.memory for s in gpu), default=None),
            gpu_watts=_mean(s.watts for s in gpu) if timed else None,
            gpu_megahertz=_mean(megahertz),
            gpu_megahertz_lowest=min(megahertz, default=None),
            gpu_throttled=sorted(throttling),
            stopped_seconds=self._stopped_seconds(epoch.started, end),
        )

    def _stopped_seconds(self, start: float, end: float) -> float:
        """Return for how long the process was stopped (SIGSTOP, Ctrl-Z, a frozen container)."""
        stopped = 0.0
        for sample, later in itertools.pairwise(self.samples):
            seconds = min(later.at, end) - max(sample.at, start)
            if seconds > 0 and (later.stopped or seconds > GAP):
                stopped += seconds
        return stopped

    def _run(self) -> None:
        with suppress(psutil.Error, OSError):  # the process has ended, or there is no /proc
            process = psutil.Process(self.pid)
            while not self.end.wait(self.interval):
                self.samples.append(self._sample(process))
        self.cost = time.thread_time()

    def _sample(self, process: psutil.Process) -> Sample:
        with process.oneshot():
            times, resident = process.cpu_times(), process.memory_info().rss
            stopped = process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        at, cpu = time.perf_counter(), times.user + times.system
        gpu = GpuSample() if self.gpu is None else sample_gpu(self.gpu, self.pid)
        return Sample(at, cpu, resident, stopped, gpu)


def sample_gpu(gpu: Any, pid: int) -> GpuSample:
    """Return what NVML tells of a GPU, and of the memory that a process holds there."""
    running = _asked(pynvml.nvmlDeviceGetComputeRunningProcesses, gpu) or []
    busy = _asked(pynvml.nvmlDeviceGetUtilizationRates, gpu)
    watts = _asked(pynvml.nvmlDeviceGetPowerUsage, gpu)
    return GpuSample(
        busy=None if busy is None else busy.gpu / 100,
        # in a container NVML may tell other numbers of the processes: then there is none
        memory=next((p.usedGpuMemory for p in running if p.pid == pid), None),
        watts=None if watts is None else watts / 1e3,
        megahertz=_asked(pynvml.nvmlDeviceGetClockInfo, gpu, pynvml.NVML_CLOCK_SM),
        throttling=_asked(pynvml.nvmlDeviceGetCurrentClocksEventReasons, gpu) or 0,
    )


def _asked(question: Callable[..., Any], *arguments: Any) -> Any:
    """Return NVML's answer, or None where the GPU or the driver has none."""
    with suppress(pynvml.NVMLError):
        return question(*arguments)
    return None


def _known(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return fmean(known) if known else None
