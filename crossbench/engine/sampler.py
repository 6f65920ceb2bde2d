"""Sample a worker process and its GPU from the parent while an epoch runs.

Samples give what the counters of usage.py do not: the cores in use at a time, and the utilization,
memory, power and clock of a GPU. A sample reads two files and, for a GPU, some NVML values; the
cost of that is recorded.
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

from ..results.epochs import SERIES_POINTS, Epoch, Usage
from .timing import MIN_TIMED_SECONDS

INTERVAL = 0.1
"""Seconds between samples."""
CHILDREN_SAMPLES = 10
"""Samples after which it is looked up again which processes the sampled one has started."""
MAX_GAP = 0.5
"""Seconds between two samples. A longer gap counts as stopped where the process stood still too, as
when Ctrl-Z stops both: on a busy machine the sampler alone may come late."""
MAX_STOPPED_CPU = 0.1
"""Cores that a process uses at most in a gap in which it stood still."""
MIN_TIMED_SHARE = 0.8
"""Share of the span that must have been timed for a GPU's utilization and power to be given: NVML's
figures are means over up to a second, and include the time between the repetitions."""
THROTTLING = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "thermal slowdown",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "thermal slowdown by the hardware",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
}
"""Reasons for a lower clock, without those of user settings and of an idle GPU."""


@dataclass(frozen=True)
class GpuSample:
    """Hold what NVML reports at one moment; None where it does not.

    busy: a fraction. memory: bytes that the process holds. throttling: bits of THROTTLING.
    """

    busy: float | None = None
    memory: int | None = None
    watts: float | None = None
    megahertz: float | None = None
    throttling: int = 0


@dataclass(frozen=True)
class Sample:
    """Hold what is known of the process, and of those that it started, at one moment.

    at: seconds of time.perf_counter, which all processes of a machine share. resident: bytes.
    cpu_seconds: of each process, by its number.
    """

    at: float
    cpu_seconds: dict[int, float]
    resident: int
    stopped: bool
    gpu: GpuSample = GpuSample()

    def cores_until(self, later: Sample) -> float:
        """Return the cores in use until a later sample, by the processes that are in both: of one
        that has started or ended in between it is not known how much of its time falls there.
        """
        both = self.cpu_seconds.keys() & later.cpu_seconds.keys()
        seconds = sum(later.cpu_seconds[pid] - self.cpu_seconds[pid] for pid in both)
        return max(0.0, seconds) / (later.at - self.at)


class Sampler:
    """Sample a process in a thread of its own, as long as the context lasts.

    gpu: NVML's handle of the GPU that the process uses, or None.
    """

    def __init__(self, pid: int, gpu: Any = None, interval: float | None = None) -> None:
        self.pid, self.interval = pid, INTERVAL if interval is None else interval
        self.gpu = gpu
        self.samples: list[Sample] = []
        self.children: list[psutil.Process] = []
        self.cost = 0.0
        self.end = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self.start = time.perf_counter()
        with suppress(RuntimeError):  # no further thread may start: there are no samples
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        if self.thread.ident is not None:
            self.thread.join()
        self.seconds = time.perf_counter() - self.start

    def usage(self, epoch: Epoch) -> Usage | None:
        """Return what was sampled while the epoch ran; None where there is no sample."""
        end = epoch.started + epoch.span_seconds
        within = [sample for sample in self.samples if epoch.started <= sample.at <= end]
        if not within:
            return None
        cores = [sample.cores_until(later) for sample, later in itertools.pairwise(within)]
        gpu = [sample.gpu for sample in within]
        timed = epoch.timed_seconds >= max(MIN_TIMED_SECONDS, MIN_TIMED_SHARE * epoch.span_seconds)
        megahertz = _without_none(sample.megahertz for sample in gpu)
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
            gpu_memory_peak=max(_without_none(s.memory for s in gpu), default=None),
            gpu_watts=_mean(s.watts for s in gpu) if timed else None,
            gpu_megahertz=_mean(megahertz),
            gpu_megahertz_lowest=min(megahertz, default=None),
            gpu_throttled=sorted(throttling),
            stopped_seconds=self._stopped_seconds(epoch.started, end),
            **_series(epoch.started, within, cores, self.gpu is not None),
        )

    def _stopped_seconds(self, start: float, end: float) -> float:
        """Return the seconds that the process was stopped (SIGSTOP, Ctrl-Z, a frozen container)."""
        stopped = 0.0
        for sample, later in itertools.pairwise(self.samples):
            seconds = min(later.at, end) - max(sample.at, start)
            idle = sample.cores_until(later) < MAX_STOPPED_CPU
            if seconds > 0 and (later.stopped or (seconds > MAX_GAP and idle)):
                stopped += seconds
        return stopped

    def _run(self) -> None:
        with suppress(psutil.Error, OSError):  # the process has exited, or there is no /proc
            process = psutil.Process(self.pid)
            while not self.end.wait(self.interval):
                if len(self.samples) % CHILDREN_SAMPLES == 0:
                    self.children = process.children(recursive=True)
                self.samples.append(self._sample(process))
        self.cost = time.thread_time()

    def _sample(self, process: psutil.Process) -> Sample:
        with process.oneshot():
            times, resident = process.cpu_times(), process.memory_info().rss
            stopped = process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        at, cpu = time.perf_counter(), {self.pid: times.user + times.system}
        for child in self.children:
            with suppress(psutil.Error), child.oneshot():  # it may have ended
                times = child.cpu_times()
                cpu[child.pid] = times.user + times.system
                resident += child.memory_info().rss
        gpu = GpuSample() if self.gpu is None else sample_gpu(self.gpu, self.pid)
        return Sample(at, cpu, resident, stopped, gpu)


def _series(
    start: float, samples: list[Sample], cores: list[float], on_gpu: bool
) -> dict[str, list[Any]]:
    """Return the fields of Usage that hold the samples over the epoch, thinned."""
    points = list(zip(samples[1:], cores, strict=True))[:: len(samples) // SERIES_POINTS + 1]
    return {
        "seconds": [round(sample.at - start, 3) for sample, _ in points],
        "cores": [round(value, 3) for _, value in points],
        "gpu_shares": [sample.gpu.busy for sample, _ in points] if on_gpu else [],
    }


def sample_gpu(gpu: Any, pid: int) -> GpuSample:
    """Return NVML's figures of a GPU, and the memory that a process holds there."""
    running = _nvml(pynvml.nvmlDeviceGetComputeRunningProcesses, gpu) or []
    busy = _nvml(pynvml.nvmlDeviceGetUtilizationRates, gpu)
    watts = _nvml(pynvml.nvmlDeviceGetPowerUsage, gpu)
    return GpuSample(
        busy=None if busy is None else busy.gpu / 100,
        # in a container NVML may report other PIDs: then the memory is not known
        memory=next((p.usedGpuMemory for p in running if p.pid == pid), None),
        watts=None if watts is None else watts / 1e3,
        megahertz=_nvml(pynvml.nvmlDeviceGetClockInfo, gpu, pynvml.NVML_CLOCK_SM),
        throttling=_nvml(pynvml.nvmlDeviceGetCurrentClocksEventReasons, gpu) or 0,
    )


def _nvml(query: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of the NVML query, or None where the GPU or the driver has none."""
    with suppress(pynvml.NVMLError):
        return query(*arguments)
    return None


def _without_none(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _without_none(values)
    return fmean(known) if known else None
