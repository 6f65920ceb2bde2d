"""Parts of a training step in a run: what is slow, wrong or failing is found."""

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from samples import write_cifar
from small_models import PLAIN

import crossbench
from crossbench import models
from crossbench.adapters.reference import ReferenceWorkload
from crossbench.engine import parts
from crossbench.models.parts import groups, parts as parts_of
from crossbench.workload import Job

PLUGIN = Path(__file__).parents[1] / "plugin"
POOLED = replace(
    PLAIN,
    name="pooled",
    layers=(
        models.Conv(2, kernel=(5, 5), stride=(3, 3)),
        models.ReLU(),
        models.MaxPool((2, 2), stride=(2, 2)),
        models.Flatten(),
        models.Dense(10),
    ),
)


@pytest.fixture(scope="module")
def measure(tmp_path_factory):
    """Return what measures the parts of the rows of some frameworks."""
    folder = tmp_path_factory.mktemp("parts")
    arguments = {"data": write_cifar(folder / "cifar"), "model": POOLED, "layers": True}
    arguments |= {"rounds": 1, "batch_size": 20, "threads": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PLUGIN)
        yield lambda *frameworks: crossbench.run(frameworks, "cpu", **arguments)


@pytest.fixture(scope="module")
def measured(measure):
    return measure(
        *("reference", "slow_pool", "wrong_pool", "raises_at_pool", "changing_pool", "no_backward")
    )


def of(comparison, framework, name):
    """Return the figures of a framework's part."""
    (result,) = [r for r in comparison.results if r.cell.framework == framework]
    (part,) = [part for part in comparison.parts if part.name == name]
    return comparison.part_figures(part)[result.name]


def test_a_part_that_is_slower_is_found(measured):
    """A max-pool that sleeps, not the layers behind it, which are timed with it."""
    names = [part.name for part in measured.parts]
    more = {
        name: of(measured, "slow_pool", name).seconds.median
        - of(measured, "reference", name).seconds.median
        for name in names
    }
    assert max(more, key=more.get) == "maxpool1"
    assert more["maxpool1"] > 0.025
    text = crossbench.table(measured, details=True)
    assert all(name in text for name in ("maxpool1", "optimizer"))


def test_every_part_is_proved(measured):
    assert of(measured, "reference", "maxpool1").problem is None
    wrong = of(measured, "wrong_pool", "maxpool1")
    assert wrong.seconds is None
    assert "does not do the same work: its gradients are off by 1.0e+00" in wrong.problem
    assert of(measured, "wrong_pool", "conv1").problem is None


def test_an_adapter_without_the_call_says_so(measured):
    assert "the adapter has no backward_epoch()" in of(measured, "no_backward", "conv1").problem
    assert measured.complete


def has_lost_the_pool_alone(comparison, framework, reason):
    """Return whether a row has the figures of the layers before the max-pool, and why not of it."""
    text = " ".join(crossbench.table(comparison).split())
    lost = r"maxpool1, flatten1(,| and) dense1( and optimizer)?: " + re.escape(reason[:20])
    return (
        reason in of(comparison, framework, "maxpool1").problem
        and of(comparison, framework, "relu1").seconds
        and re.search(lost, text)
        and {r.status for r in comparison.results} == {"ran"}
    )


def test_a_framework_that_fails_in_a_layer_loses_the_parts_with_it_alone(measured):
    changed = "the gradients of backward_epoch() changed after it had returned"
    assert has_lost_the_pool_alone(measured, "raises_at_pool", "RuntimeError")
    assert has_lost_the_pool_alone(measured, "changing_pool", changed)
    assert of(measured, "reference", "maxpool1").seconds


@pytest.mark.long
def test_a_framework_that_ends_or_goes_on_in_a_layer_loses_the_parts_with_it_alone(measure):
    """A first fetch that compiles is no fault, and gradients are compared where they are timed."""
    names = ("dies_at_pool", "goes_on_at_pool", "slow_first_fetch", "wrong_timed_pool")
    found = measure("reference", *names)
    late = "backward_epoch() of the adapter was not over when it returned"
    assert has_lost_the_pool_alone(found, "dies_at_pool", "the worker process exited with status")
    assert late in of(found, "goes_on_at_pool", "maxpool1").problem
    assert of(found, "goes_on_at_pool", "relu1").seconds
    assert of(found, "slow_first_fetch", "maxpool1").seconds
    assert "where it is timed" in of(found, "wrong_timed_pool", "maxpool1").problem


def test_a_resumed_run_goes_on_with_the_parts(measured, tmp_path):
    again = replace(
        measured,
        results=[replace(measured.results[0], status="pending")],
        settings=replace(measured.settings, rounds=2),
    )
    again.replace(tmp_path / "r.json")
    resumed = crossbench.resume(tmp_path / "r.json", model=POOLED)
    assert [time.round for time in resumed.results[0].parts["conv1"].times] == [1, 2]


def forgets(workload):
    """Take long in the first call after another workload was built."""
    if workload.seen != type(workload).built:
        workload.seen = type(workload).built
        time.sleep(0.5)


def is_late_once(workload):
    """Take long in the third call, the first that is timed, of the second workload."""
    workload.seen += 1
    if (workload.number, workload.seen) == (2, 3):
        time.sleep(0.5)


@pytest.mark.long
@pytest.mark.parametrize("disturb", [forgets, is_late_once])
def test_a_single_slow_call_is_no_part(small_model, disturb):
    class Disturbed(ReferenceWorkload):
        built = 0

        def __init__(self, job):
            super().__init__(job)
            type(self).built += 1
            self.number, self.seen = self.built, 0

        def backward_epoch(self):
            disturb(self)
            return super().backward_epoch()

    (group, *_) = groups(parts_of(small_model))
    timer = parts.PartTimer(lambda model: Disturbed(Job(model, "cpu", 1, "float32")), 4)
    assert len(group) > 1
    assert all(abs(found.seconds) < 0.2 for found in timer.time(group, 1))


def test_garbage_is_collected_before_each_call_that_is_timed(small_model):
    calls = []

    class Littering(ReferenceWorkload):
        def collect_garbage(self):
            calls.append("collected")

        def backward_epoch(self):
            calls.append("called")
            return super().backward_epoch()

    (group, *_) = groups(parts_of(small_model))
    parts.PartTimer(lambda model: Littering(Job(model, "cpu", 1, "float32")), 4).time(group, 1)
    timed = calls[calls.index("collected") :]
    assert timed == ["collected", "called"] * (len(timed) // 2)
    assert len(timed) >= 2 * 2 * 3 * len(group)
