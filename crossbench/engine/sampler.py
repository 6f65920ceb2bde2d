"""What a worker and the GPU are doing, watched from the parent while an epoch runs.

For what no counter of usage.py adds up: the cores in use at a time, and a GPU's use, memory and
power. A sample reads two files and, for a GPU, three NVML values; what that costs is recorded.
"""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean

import psutil
import pynvml

from ..machine import gpu_handle
from ..results.records import Epoch, Usage

INTERVAL = 0.1
"""Seconds between samples."""


@dataclass(frozen=True)
class Sample:
    """at: of time.perf_counter, which all processes of a machine share. gpu_busy: a fraction."""

    at: float
    cpu_seconds: float
    resident: int
    gpu_busy: float | None = None
    gpu_memory: int | None = None
    gpu_watts: float | None = None


class Sampler:
    """Samples a process in a thread of its own, for as long as the context lasts."""

    def __init__(self, pid: int, device: str, interval: float | None = None) -> None:
        self.pid, self.interval = pid, INTERVAL if interval is None else interval
        self.gpu = gpu_handle() if device == "gpu" else None
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
        """Of the samples that were taken while the epoch ran; None where none was."""
        end = epoch.started + epoch.wall_seconds
        within = [sample for sample in self.samples if epoch.started <= sample.at <= end]
        if not within:
            return None
        cores = [
            (later.cpu_seconds - sample.cpu_seconds) / (later.at - sample.at)
            for sample, later in itertools.pairwise(within)
        ]
        busy = [s.gpu_busy for s in within if s.gpu_busy is not None]
        memory = [s.gpu_memory for s in within if s.gpu_memory is not None]
        watts = [s.gpu_watts for s in within if s.gpu_watts is not None]
        return Usage(
            round=epoch.round,
            samples=len(within),
            sampler_cores=self.cost / self.seconds,
            cores_peak=max(cores, default=None),
            resident_peak=max(s.resident for s in within),
            gpu_busy=fmean(busy) if busy else None,
            gpu_memory_peak=max(memory, default=None),
            gpu_watts=fmean(watts) if watts else None,
        )

    def _run(self) -> None:
        with suppress(psutil.Error):  # the process has ended
            process = psutil.Process(self.pid)
            while not self.end.wait(self.interval):
                self.samples.append(self._sample(process))
        self.cost = time.thread_time()

    def _sample(self, process: psutil.Process) -> Sample:
        with process.oneshot():
            times, resident = process.cpu_times(), process.memory_info().rss
        at, cpu = time.perf_counter(), times.user + times.system
        if self.gpu is None:
            return Sample(at, cpu, resident)
        return Sample(at, cpu, resident, *self._gpu())

    def _gpu(self) -> tuple[float | None, int | None, float | None]:
        """Each None where the GPU does not tell."""
        busy = memory = watts = None
        with suppress(pynvml.NVMLError):
            busy = pynvml.nvmlDeviceGetUtilizationRates(self.gpu).gpu / 100
        with suppress(pynvml.NVMLError):
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(self.gpu).used)
        with suppress(pynvml.NVMLError):
            watts = pynvml.nvmlDeviceGetPowerUsage(self.gpu) / 1e3
        return busy, memory, watts
