"""Test how epochs are repeated and timed, with the reference workload: this needs no GPU."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import nvml
import pytest
from small_models import PLAIN

from crossbench.adapters.reference import NumpyArrays, ReferenceWorkload
from crossbench.data import Split, cifar10
from crossbench.data.sources import Augmentation
from crossbench.engine import epoch_timer, timing, usage, worker as worker_module
from crossbench.engine.assignment import Assignment, save_arrays
from crossbench.engine.batches import ArrayBatches, AugmentedBatches
from crossbench.engine.epoch_start import EpochStart
from crossbench.engine.epoch_timer import EpochTimer
from crossbench.engine.evidence import STEADY_SCALE
from crossbench.engine.peak import PeakWork
from crossbench.engine.tasks import TrainingTask
from crossbench.engine.timing import has_settled, mean_epoch, timed_epoch
from crossbench.engine.worker import Worker
from crossbench.results.epochs import Epoch, SystemActivity
from crossbench.workload import Job


@pytest.fixture
def workload():
    made = ReferenceWorkload(Job(PLAIN, "cpu", 1, "float32"))
    random = np.random.default_rng(0)
    inputs = random.random((2, 4, *PLAIN.input_shape), np.float32)
    made.place(ArrayBatches(inputs, random.integers(0, 10, (2, 4))))
    made.load_weights(PLAIN.initial_weights(0))
    return made


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(epoch_timer, "WARM_UP_SECONDS", 0.1)
    monkeypatch.setattr(epoch_timer, "MIN_TIMED_SECONDS", 0.2)


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that only the test advances, in seconds. This process has no children, and no
    garbage of the tests before.
    """
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(timing.gc, "collect", lambda: None)
    monkeypatch.setattr(usage.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(usage, "run_delay_seconds", lambda: 0.0)  # the clock is not the kernel's
    monkeypatch.setattr(usage, "children", list)  # it takes long to look for them
    return clock


@pytest.fixture
def timer(workload):
    """Return a timer of the workload's epochs, as on a GPU."""
    work, weights = TrainingTask(workload), PLAIN.initial_weights(0)
    return EpochTimer(work, EpochStart(work, weights, workload.batches), True, None)


@pytest.fixture
def epochs(timer, clock):
    """Return what sets the seconds of each epoch by its number, and counts the epochs."""
    train = timer.work.run

    def take(seconds_of_epoch):
        count = [0]

        def run():
            clock.now += seconds_of_epoch(count[0])
            count[0] += 1
            return train()

        timer.work.run = run
        return count

    return take


@pytest.mark.usefixtures("short")
def test_an_epoch_is_repeated_from_other_weights_until_it_can_be_measured(timer, clock, epochs):
    scales, rewind = [], timer.starts.rewind

    def rewind_slowly(epoch, scale):
        scales.append((count[0], scale))
        clock.now += 0.01
        rewind(epoch, scale)

    count, timer.starts.rewind = epochs(lambda _: 0.03), rewind_slowly
    epoch, losses = timer.time(3, 1)
    assert (epoch.round, epoch.epoch) == (3, 1)
    # 0.12 s of warm-up, the first repetition, two from an idle device, six more until 0.21 s are
    # timed, and the state of the first one again
    assert [before for before, _ in scales] == list(range(3 + 1 + 1 + 6 + 1))
    assert count == [len(scales)]
    assert epoch.repeats == len(timer.runs) == 7
    assert epoch.wall_seconds == pytest.approx(0.03)
    assert epoch.timed_seconds == pytest.approx(0.21)
    np.testing.assert_array_equal(epoch.losses, losses)
    assert scales[3][1] == scales[-1][1] == STEADY_SCALE == timer.runs[0].scale
    assert len({run.scale for run in timer.runs}) == 7
    assert [run.repetition for run in timer.runs] == [1, 2, 3, 4, 5, 6, 7]
    np.testing.assert_array_equal(timer.runs[0].steps[:, 0], losses)


@pytest.fixture
def collecting(timer, workload, epochs):
    """Return what sets the seconds of garbage collection in each epoch, of one second beside them,
    and counts the epochs.
    """
    timer.on_gpu = False

    def collect(seconds_of_epoch):
        def seconds(epoch):
            collected = seconds_of_epoch(epoch)
            workload.epoch_figures = lambda: {"GC s": collected}
            return 1 + collected

        return epochs(seconds)

    return collect


@pytest.mark.parametrize(("early", "untimed"), [([0.1, 0.4, 0.02], 3), ([0.4, 0.4, 0.4], 4)])
def test_a_steady_epoch_is_timed_when_the_process_has_settled(timer, collecting, early, untimed):
    """A runtime's large collections of its first epochs are in none that is timed, not even where
    two of them are alike by chance.
    """
    count = collecting(lambda epoch: [*early, *[0.01] * 9][epoch])
    timer.time(1, 0)
    epoch, _ = timer.time(1, 1)
    assert epoch.wall_seconds == pytest.approx(1.01)
    assert count[0] == 1 + untimed + 1
    assert [run.wall_seconds for run in timer.runs if run.epoch == 1] == [epoch.wall_seconds]


@pytest.mark.parametrize(
    ("collected", "repeats"), [(lambda _: 0.04, 1), (lambda _: 0.25, 4), ((2, 3).__contains__, 1)]
)
def test_an_epoch_of_much_garbage_is_timed_for_longer(timer, collecting, collected, repeats):
    """Its share differs in each few steps. Its own garbage does not decide: those without a
    collection would be short, and count as much as the long ones.
    """
    collecting(lambda epoch: float(collected(epoch)))
    timer.time(1, 0)
    timed, _ = timer.time(1, 1)
    assert timed.figures["GC s"] > 0
    assert timed.repeats == repeats


@pytest.mark.parametrize(("growth", "untimed"), [(0.1, epoch_timer.MAX_SETTLING), (3.0, 3)])
def test_a_process_that_never_settles_is_timed_after_some_epochs_or_seconds(
    timer, collecting, monkeypatch, growth, untimed
):
    monkeypatch.setattr(epoch_timer, "BUSY_RUNTIME_SHARE", math.inf)  # a single repetition
    count = collecting(lambda epoch: growth * epoch)
    timer.time(1, 0)
    timer.time(1, 1)
    assert count[0] == 1 + untimed + 1


@pytest.mark.parametrize(
    ("before", "now", "settled"),
    [
        ({"figures": {"GC s": 0.5}}, {"figures": {"GC s": 0.5}}, True),
        ({"figures": {"GC s": 0.4}}, {"figures": {"GC s": 0.5}}, False),
        ({"figures": {"GC": 0.5}}, {"figures": {"GC": 0.1}}, True),  # no seconds
        ({"system_cpu_seconds": 0.5}, {"system_cpu_seconds": 0.3}, False),
        ({"system_cpu_seconds": 0.5}, {"system_cpu_seconds": 0.3, "cpu_seconds": 8.0}, True),
        ({"system_cpu_seconds": 0.3}, {"system_cpu_seconds": 0.5}, False),
    ],
)
def test_a_process_has_settled_when_nothing_changes_any_more(before, now, settled):
    activity = SystemActivity(None, None, None, None, None, None)
    epoch = Epoch(1, 1, 0.0, 2.0, 2.0, [], {}, activity)
    epochs = [replace(epoch, **fields) for fields in (before, now)]
    assert has_settled(*epochs) == settled


@pytest.fixture
def long_epochs(timer, epochs, monkeypatch):
    """Let each epoch take 6 s, in which a process settles; return a list with their number."""
    monkeypatch.setattr(epoch_timer, "SETTLED_STEPS", 2)
    timer.on_gpu = False
    return epochs(lambda _: 6.0)


def test_a_long_first_epoch_needs_no_warm_up(timer, long_epochs):
    for epoch in (0, 1):
        timer.time(1, epoch)
    assert long_epochs == [2]


def test_a_shorter_steady_epoch_follows_one_that_is_not_timed(timer, workload, long_epochs):
    """Its program may be another one, which is compiled when it first runs."""
    timer.time(1, 0)
    timer.starts.take(workload.batches, 1)
    workload.place(timer.starts.batches)
    epoch, _ = timer.time(1, 1)
    assert (long_epochs, epoch.steps) == ([3], 1)


def test_on_a_gpu_a_long_epoch_of_the_same_length_is_compared_all_the_same(timer, long_epochs):
    """One untimed epoch that differs from the first is not enough."""
    timer.on_gpu, figures = True, iter([0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    timer.work.workload.epoch_figures = lambda: {"GC s": next(figures)}
    timer.time(1, 0)
    timer._settle(1)
    assert long_epochs == [1 + 3]


@pytest.mark.parametrize(("slow_fetches", "late"), [(1, 0.0), (9, 0.5)])
def test_a_fetch_that_is_slow_once_is_no_work_that_goes_on(
    timer, workload, clock, epochs, slow_fetches, late
):
    """Only an epoch after which each first fetch is slow was not over when it returned."""
    timer.on_gpu = False
    count, weights = epochs(lambda _: 1.0), workload.weights
    fetched, slow = [0], [0.5] * slow_fetches

    def fetch():
        if count != fetched and slow:  # the first fetch after an epoch
            clock.now += slow.pop()
        fetched[:] = count
        return weights()

    workload.weights = fetch
    epoch, _ = timer.time(1, 1)
    assert epoch.late_seconds == pytest.approx(late)
    now = timer.starts.change(STEADY_SCALE)  # the weights are those that it left
    for name, change in timer.runs[0].change.items():
        np.testing.assert_array_equal(now[name], change)


def test_the_change_of_each_epoch_is_its_own(timer, monkeypatch):
    """Not that since the weights were loaded: an epoch that changes nothing must show."""
    monkeypatch.setattr(epoch_timer, "MIN_CPU_SECONDS", 0.0)  # no repetitions
    timer.on_gpu = False
    timer.time(1, 0)
    for epoch in (1, 2):
        timer.time(1, epoch)
    by_epoch = {run.epoch: run for run in timer.runs if run.repetition == 1}
    after = timer.starts.change(STEADY_SCALE)
    for name, change in by_epoch[1].change.items():
        np.testing.assert_allclose(change + by_epoch[2].change[name], after[name], atol=1e-12)


def test_seconds_are_the_mean_and_counters_the_sum():
    first = Epoch(
        *(2, 1, 10.0, 0.5, 0.4, [1.0], {"GC s": 0.1}), SystemActivity(1.0, None, 0.0, 1, 5.0, 20.0)
    )
    second = replace(
        first,
        started=10.75,
        wall_seconds=0.25,
        cpu_seconds=0.2,
        losses=[1.5],
        figures={"GC s": 0.3},
        system_activity=SystemActivity(0.5, 0.0, 0.0, 0, 2.0, 10.0),
    )
    both = mean_epoch([first, second])
    assert both == replace(
        first,
        wall_seconds=0.375,
        cpu_seconds=pytest.approx(0.3),
        system_cpu_seconds=0.0,
        page_faults=0.0,
        figures={"GC s": pytest.approx(0.2)},
        system_activity=SystemActivity(1.5, None, 0.0, 1, 7.0, 30.0),
        repeats=2,
        untimed_seconds=pytest.approx(0.25),
    )
    assert (both.timed_seconds, both.span_seconds) == (0.75, pytest.approx(1.0))


def test_the_gpu_energy_of_an_epoch_is_measured(workload, monkeypatch):
    card = nvml.Card("GPU-1", joules=50.0)
    nvml.install(monkeypatch, card)
    train = workload.train_epoch

    def use_energy():
        card.joules += 7.0
        return train()

    workload.train_epoch = use_energy
    epoch, _ = timed_epoch(TrainingTask(workload), card, 1, 1)
    assert epoch.system_activity.gpu_joules == pytest.approx(7.0)
    card.fails = nvml.pynvml.NVML_ERROR_NOT_SUPPORTED
    epoch, _ = timed_epoch(TrainingTask(workload), card, 1, 1)
    assert epoch.system_activity.gpu_joules is None


@pytest.fixture
def answering(tmp_path, cifar_directory, monkeypatch):
    """A Worker in this process, of the reference, as it is on a GPU or on the CPU."""
    save_arrays(cifar10.load_path(cifar_directory), tmp_path)
    nvml.install(monkeypatch, nvml.Card("GPU-1"))

    def make(gpu=None, task="train"):
        job = Job(PLAIN, "cpu", 1, "float32")
        made = Worker(Assignment("reference", job, tmp_path, 10, 10, 0, gpu, task))
        made.start()
        made.freed = []
        made.workload.free_memory = lambda: made.freed.append("freed")
        return made

    return make


@pytest.mark.long
def test_steady_epochs_on_a_gpu_train_the_same_as_on_a_cpu(answering, monkeypatch):
    """Each is repeated from the same weights, and the next starts where a single one would end."""
    monkeypatch.setattr(epoch_timer, "WARM_UP_SECONDS", 0.1)
    monkeypatch.setattr(epoch_timer, "MIN_CPU_SECONDS", 1000.0)
    monkeypatch.setattr(epoch_timer, "MAX_CPU_REPEATS", 3)
    on_cpu, on_gpu = answering(), answering(gpu=0)
    for epoch in range(4):
        expected, found = on_cpu.epoch(1, epoch, 10), on_gpu.epoch(1, epoch, 10)
        np.testing.assert_array_equal(found.losses, expected.losses)
        assert expected.repeats == (3 if epoch else 1)
        assert (found.repeats > 1) == (epoch > 0)  # the first one is cold
    assert on_gpu.test() == on_cpu.test()
    assert len(on_gpu.freed) == 4
    assert on_cpu.freed == []  # on a CPU nothing changes


def test_the_latency_is_of_enough_batches_from_other_weights_each_time(answering, monkeypatch):
    monkeypatch.setattr(worker_module, "MIN_LATENCIES", 25)  # of epochs of 10 batches
    made = answering(task="predict")
    made.epoch(1, 0, 10)
    seconds, scales, load = [], [], made.starts.load
    begun, predict = [], made.workload.predict_batches
    made.workload.predict_batches = lambda: begun.append(len(scales)) or predict()
    made.starts.load = lambda scale: (scales.append(scale), load(scale))
    percentile = np.percentile
    monkeypatch.setattr(
        np, "percentile", lambda *a, **k: seconds.append(a[0]) or percentile(*a, **k)
    )
    latency = made.latency(1)
    assert len(seconds[0]) == 30
    assert len(set(scales)) == 3
    assert latency.p99_seconds == max(seconds[0])  # of fewer than 100
    assert begun == [0, 1, 2, 3]  # a first batch, which may compile, is none of them


def test_of_a_repetition_the_sizes_of_the_changes_are_kept(answering, monkeypatch):
    """Of hundreds on a GPU the whole sketches would be more than an answer may have."""
    monkeypatch.setattr(epoch_timer, "MIN_CPU_SECONDS", 1000.0)
    monkeypatch.setattr(epoch_timer, "MAX_CPU_REPEATS", 3)
    made = answering()
    made.epoch(1, 0, 10)
    made.epoch(1, 1, 10)
    first, *others = made.final_stats().changes[1]
    assert len(others) == 2
    for name, change in first.items():
        for other in others:
            assert other[name] == [pytest.approx(np.linalg.norm(change), rel=0.1)]


def test_the_memory_of_the_peak_is_freed_even_after_an_error(answering):
    made, work = answering(gpu=0), PeakWork(256, 2**22, 0.1)
    assert made.peak(work).gflops > 0
    assert len(made.freed) == 2

    class TooLarge(NumpyArrays):
        def multiply(self, a, b, into):
            raise MemoryError("out of memory")

    made.workload.arrays = TooLarge
    with pytest.raises(MemoryError):
        made.peak(work)
    assert len(made.freed) == 3


def test_the_first_two_epochs_of_a_round_have_the_same_augmentation(timer, workload):
    split = Split(np.zeros((8, *workload.model.input_shape), np.float32), np.zeros(8, np.int64))
    timer.starts.batches = AugmentedBatches(split, 4, 2, Augmentation(0.1, True), 0)
    for epoch, expected in ((0, 0), (1, 0), (2, 1)):
        timer.starts.rewind(epoch, 1.0)
        assert timer.starts.batches.epoch == expected
        timer.starts.go_on(epoch)
        assert timer.starts.batches.epoch == expected
