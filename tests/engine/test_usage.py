"""Test the counters and the sampler, with a real process that uses the CPU and a fake NVML."""

import mmap
import os
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import nvml
import psutil
import pynvml
import pytest

from crossbench.engine import usage
from crossbench.engine.sampler import GpuSample, Sample, Sampler, sample_gpu
from crossbench.engine.timing import timed_epoch, timed_without_delay
from crossbench.engine.usage import Clock, Counters, peak_resident
from crossbench.results.epochs import SERIES_POINTS, Epoch, SystemActivity

SPIN = "import time\nwhile time.process_time() < {}: pass"


def spin(seconds):
    """Return the command of a process that uses so many CPU seconds."""
    return [sys.executable, "-c", SPIN.format(seconds)]


def test_the_cpu_time_of_other_processes_is_counted():
    before = Counters.read(None)
    subprocess.run(spin(1.0), check=True)
    seen = before.activity_until(Counters.read(None))
    assert seen.other_processes_cpu_seconds > 0.4  # most of it, unless the machine is overloaded
    assert seen.gpu_joules is None


class InAChild:
    """Does its work in a child process, which it waits for or leaves behind."""

    continues = True

    def __init__(self, waits):
        self.waits, self.child = waits, None
        self.workload = SimpleNamespace(epoch_figures=dict)

    def run(self):
        self.child = subprocess.Popen(spin(0.5 if self.waits else 60))
        if self.waits:
            self.child.wait()
        else:
            time.sleep(1.0)


@pytest.mark.parametrize("waits", [True, False])
def test_the_work_of_a_child_process_counts(waits):
    work = InAChild(waits)
    own, before = peak_resident(), Counters.read(None).busy_cpu_seconds
    try:
        epoch, _ = timed_epoch(work, None, 1, 1)
        busy = Counters.read(None).busy_cpu_seconds - before
        assert epoch.cpu_seconds > 0.1
        if not waits:
            assert peak_resident() > own + 2**20
    finally:
        work.child.kill()
        work.child.wait()
    others = epoch.system_activity.other_processes_cpu_seconds
    assert others <= busy - epoch.cpu_seconds + 0.05  # the kernel's ticks take 0.01 s


def test_the_kernels_work_for_this_process_is_counted():
    """New pages are touched: the kernel clears each of them."""
    clock = Clock.start()
    pages = 20_000
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place] = 1
    seconds, faults = clock.kernel()
    assert seconds > 0
    assert pages / 512 < faults < 2 * pages  # huge pages are 512 of them


@pytest.mark.skipif(not usage.THREADS.is_dir(), reason="the system does not tell the delay")
def test_what_other_processes_delay_does_not_count_and_waiting_does():
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    spinning = [subprocess.Popen(spin(60)) for _ in range(3)]
    try:

        def work():
            """Take 0.3 CPU seconds, for which three others on this CPU make it wait."""
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass

        start = time.perf_counter()
        _, seconds = timed_without_delay(work)
        assert seconds < 0.7 * (time.perf_counter() - start)
        _, seconds = timed_without_delay(lambda: time.sleep(1))  # others may delay its end
        assert seconds > 0.5
    finally:
        os.sched_setaffinity(0, own)
        for process in spinning:
            process.kill()
            process.wait()


def test_without_proc_no_delay_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "THREADS", tmp_path / "none")
    assert usage.run_delay_seconds() == 0


def test_missing_and_wrapped_counters_are_none():
    nothing = Counters(None, 0.0, None, None, None, None, None)
    assert nothing.activity_until(nothing) == SystemActivity(None, None, None, None, None, None)
    # the energy counter has wrapped
    before = Counters(5.0, 1.0, 0.0, 0.0, 3, 100.0, None)
    after = Counters(9.0, 2.0, 0.5, 0.25, 5, 1.0, None)
    assert before.activity_until(after) == SystemActivity(3.0, 0.5, 0.25, 2, None, None)


def test_energy_and_thermal_throttling_are_read_from_the_kernel(tmp_path, monkeypatch):
    """Read a copy of the kernel's tree: this machine may have no such counters."""
    for name in ("RAPL", "CPUS"):
        monkeypatch.setattr(usage, name, tmp_path / name)
    domains = {"intel-rapl:0": "package-0", "intel-rapl:1": "package-1", "intel-rapl:0:0": "core"}
    for domain, name in domains.items():
        (tmp_path / "RAPL" / domain).mkdir(parents=True)
        (tmp_path / "RAPL" / domain / "name").write_text(f"{name}\n")
        (tmp_path / "RAPL" / domain / "energy_uj").write_text("2500000\n")
    for cpu in usage._own_cpus():
        (tmp_path / f"CPUS/cpu{cpu}/thermal_throttle").mkdir(parents=True)
        (tmp_path / f"CPUS/cpu{cpu}/thermal_throttle/core_throttle_count").write_text("2\n")
    counters = Counters.read(None)
    assert counters.cpu_joules == 5.0
    assert counters.thermal_throttle_events == 2 * len(usage._own_cpus())


def epoch_of(started, seconds, **more):
    """Return an epoch of round 3."""
    nothing = SystemActivity(*[None] * 6)
    return Epoch(3, 0, started, seconds, 1.0, [1.0], {}, nothing, **more)


def test_the_sampler_samples_another_process_as_long_as_it_runs():
    process = subprocess.Popen(spin(0.5))
    start = time.perf_counter()
    with Sampler(process.pid, interval=0.02) as sampler:
        time.sleep(1.5)
    process.wait()
    found = sampler.usage(epoch_of(start + 0.2, 1.2))
    assert found.round == 3
    assert 3 < found.samples < 70
    assert found.cores_peak > 0.3
    assert len(found.seconds) == len(found.cores) > 2
    assert 0 < found.seconds[0] < found.seconds[-1] < 1.3
    assert 0.3 < max(found.cores) <= found.cores_peak + 0.001
    assert found.resident_peak > 2**20
    assert 0 < found.sampler_cores < 0.5
    assert (found.gpu_busy, found.gpu_memory_peak, found.gpu_watts) == (None, None, None)
    assert found.gpu_shares == []
    assert sampler.usage(epoch_of(start - 10, 1.0)) is None


def test_a_long_series_is_thinned():
    sampler = Sampler(os.getpid())
    sampler.seconds = 200.0
    sampler.samples = [Sample(100 + i / 10, {1: i / 20}, 2**20, False) for i in range(2000)]
    found = sampler.usage(epoch_of(100.0, 190.0))
    assert SERIES_POINTS / 2 < len(found.seconds) <= SERIES_POINTS
    assert set(found.cores) == {0.5}
    assert found.seconds[-1] > 180


def test_a_process_that_starts_or_ends_between_two_samples_counts_in_neither():
    alone, later = Sample(10.0, {1: 5.0}, 0, False), Sample(10.2, {1: 5.2}, 0, False)
    with_a_child = Sample(10.1, {1: 5.1, 2: 60.0}, 0, False)
    assert alone.cores_until(with_a_child) == pytest.approx(1.0)
    assert with_a_child.cores_until(later) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("cpu_seconds", "is_stopped", "stopped"),
    [(0.9, False, 0.0), (0.02, False, 0.8), (0.9, True, 0.8)],
    ids=["it worked on", "it stood still", "it was seen to be stopped"],
)
def test_a_late_sample_is_a_stop_only_if_the_process_stood_still(cpu_seconds, is_stopped, stopped):
    """As by Ctrl-Z in a terminal, or in a frozen container: no samples are taken meanwhile."""
    sampler = Sampler(os.getpid())
    sampler.seconds = 1.0
    sampler.samples = [
        Sample(10.0, {1: 5.0}, 2**20, False),
        Sample(10.1, {1: 5.1}, 2**20, False),
        Sample(10.9, {1: 5.1 + cpu_seconds}, 2**20, is_stopped),
    ]
    assert sampler.usage(epoch_of(10.0, 1.0)).stopped_seconds == pytest.approx(stopped)
    assert sampler.usage(epoch_of(10.0, 0.1)).stopped_seconds == 0  # the stop was later


def test_the_sampler_samples_a_gpu(monkeypatch):
    """Its utilisation and power are known of an epoch that is repeated for long enough."""
    reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle
    own = {1: 99, os.getpid(): 2**30}
    clocks = [1900, 1000, 1500]
    card = nvml.Card("GPU-1", busy=40, watts=250, megahertz=clocks, reasons=reasons, processes=own)
    nvml.install(monkeypatch, card)
    start = time.perf_counter()
    with Sampler(os.getpid(), card, interval=0.02) as sampler:
        time.sleep(0.5)
    epoch = epoch_of(start, 0.5, repeats=3)
    found = sampler.usage(epoch)
    assert found.gpu_busy == pytest.approx(0.4)
    assert found.gpu_watts == 250
    assert found.gpu_memory_peak == 2**30  # of this process, not of the whole GPU
    assert found.gpu_megahertz_lowest == 1000
    assert 1000 < found.gpu_megahertz < 1900
    assert found.gpu_throttled == ["power cap"]  # being idle is no throttling
    for short in (
        replace(epoch, repeats=1),  # half a second
        replace(epoch, untimed_seconds=0.6),  # of 2.1 s, over a fifth
    ):
        found = sampler.usage(short)
        assert (found.gpu_busy, found.gpu_watts) == (None, None)
        assert found.gpu_megahertz_lowest == 1000
    found = sampler.usage(replace(epoch, untimed_seconds=0.3))
    assert found.gpu_busy == pytest.approx(0.4)


def test_what_nvml_refuses_or_does_not_list_is_none(monkeypatch):
    listed = nvml.Card("GPU-1", processes={4242: 2**30})  # another id, as in a container
    refusing = nvml.Card("GPU-2", fails=pynvml.NVML_ERROR_NOT_SUPPORTED)
    nvml.install(monkeypatch, listed, refusing)
    assert sample_gpu(listed, os.getpid()) == GpuSample(0.8, None, 300.0, 1500.0, 0)
    assert sample_gpu(refusing, os.getpid()) == GpuSample()


@pytest.mark.parametrize("stat", [None, "cpu  1 2 3 4 5 6 7 8 9 10\n", "cpu0 words\n"])
def test_a_missing_or_damaged_proc_stat_is_no_error(tmp_path, monkeypatch, stat):
    """As in a container whose /proc/stat is hidden, cut short, or for fewer CPUs."""
    if stat is not None:
        (tmp_path / "stat").write_text(stat)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    before = Counters.read(None)
    assert (before.busy_cpu_seconds, before.stolen_cpu_seconds) == (None, None)
    assert before.activity_until(Counters.read(None)).other_processes_cpu_seconds is None


def test_the_sampler_without_proc_takes_no_samples(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    with Sampler(os.getpid(), interval=0.01) as sampler:
        time.sleep(0.1)
    assert sampler.samples == []
    assert capsys.readouterr().err == ""


def test_cpus_are_found_by_their_number(tmp_path, monkeypatch):
    """Those between may be offline, or a container may count its own ones from 0."""
    lines = ["cpu  0 0 0 0 0 0 0 0 0 0"]
    lines += [f"cpu{number} {100 * number} 0 0 0 0 0 0 0 0 0" for number in (1, 4, 7)]
    (tmp_path / "stat").write_text("\n".join([*lines, "intr 0\n"]))
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    monkeypatch.setattr(usage, "_own_cpus", lambda: [4, 7])
    ticks = os.sysconf("SC_CLK_TCK")
    assert usage._cpu_seconds()[0] == pytest.approx(1100 / ticks)
    monkeypatch.setattr(usage, "_own_cpus", lambda: [4, 9])
    assert usage._cpu_seconds() == (None, None)


def test_without_another_thread_there_are_no_samples(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    with Sampler(os.getpid()) as sampler:
        pass
    assert sampler.samples == []
