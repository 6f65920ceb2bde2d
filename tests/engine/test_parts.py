"""Parts of a training step in a run: what is slow, wrong or failing is found."""

import re
import time
from dataclasses import replace

import numpy as np
import pytest
from small_models import named

import crossbench
from crossbench.adapters.reference import ReferenceWorkload
from crossbench.engine import parts
from crossbench.engine.checked import CheckedWorkload
from crossbench.models.parts import groups, parts as parts_of
from crossbench.workload import Job

pytestmark = pytest.mark.usefixtures("plugin")


def part(comparison, name):
    return next(part for part in comparison.parts if part.name == name)


def figures(comparison, result, part):
    return comparison.part_figures(part)[result.name]


def of(comparison, framework, name):
    (result,) = [r for r in comparison.results if r.cell.framework == framework]
    return figures(comparison, result, part(comparison, name))


def test_a_part_that_is_slower_is_found(run, tmp_path):
    """A max-pool that sleeps, not the layers behind it, which are timed with it."""
    file = tmp_path / "r.json"
    found = run("reference,slow_pool", layers=True, json=file)
    reference, slow = found.results
    assert crossbench.load(file) == found
    more = {
        p.name: figures(found, slow, p).seconds.median - figures(found, reference, p).seconds.median
        for p in found.parts
    }
    assert max(more, key=more.get) == "maxpool1"
    assert more["maxpool1"] > 0.05
    text = crossbench.table(found, details=True)
    assert "maxpool1" in text
    assert "optimizer" in text


def test_every_part_is_proved(run):
    found = run("reference,wrong_pool", layers=True)
    assert of(found, "reference", "maxpool1").problem is None
    wrong = of(found, "wrong_pool", "maxpool1")
    assert wrong.seconds is None
    assert "does not do the same work: its gradients are off by 1.0e+00" in wrong.problem
    assert of(found, "wrong_pool", "conv1").problem is None


@pytest.mark.long
def test_gradients_are_compared_where_they_are_timed(run):
    found = run("reference,well,wrong_timed_pool", layers=True)
    assert of(found, "well", "maxpool1").problem is None
    assert "where it is timed" in of(found, "wrong_timed_pool", "maxpool1").problem


@pytest.mark.parametrize(
    "reasons",
    [
        {
            "raises_at_pool": "RuntimeError",
            "changing_pool": "the gradients of backward_epoch() changed after it had returned",
        },
        pytest.param(
            {
                "dies_at_pool": "the worker process exited with status",
                "goes_on_at_pool": "backward_epoch() of the adapter was not over when it returned",
            },
            marks=pytest.mark.long,
        ),
    ],
    ids=", ".join,
)
def test_a_framework_that_fails_in_a_layer_loses_the_parts_with_it_alone(run, reasons):
    found = run(["reference", *reasons], layers=True)
    assert {r.status for r in found.results} == {"ran"}
    text = " ".join(crossbench.table(found).split())
    for framework, reason in reasons.items():
        assert reason in of(found, framework, "maxpool1").problem
        assert of(found, framework, "relu1").seconds
        assert re.search(
            r"maxpool1, flatten1(,| and) dense1( and optimizer)?: " + re.escape(reason[:20]), text
        )
    assert of(found, "reference", "maxpool1").seconds


@pytest.mark.long
def test_a_first_fetch_that_compiles_is_no_fault(run):
    assert of(run("slow_first_fetch", layers=True), "slow_first_fetch", "maxpool1").seconds


def test_an_adapter_without_the_call_says_so(run):
    found = run("no_backward", layers=True)
    assert "the adapter has no backward_epoch()" in of(found, "no_backward", "conv1").problem
    assert found.complete


def test_the_deviation_of_a_part_is_that_of_its_gradients(small_model):
    job = Job(small_model, "cpu", 1, "float32")
    for found in parts_of(small_model)[:-1]:
        assert parts.deviation(ReferenceWorkload, job, found.whole) == 0

    class Off(ReferenceWorkload):
        def backward_epoch(self):
            right = super().backward_epoch()()
            return lambda: {n: a + 1e-6 * np.abs(a).max() for n, a in right.items()}

    whole = parts_of(small_model)[0].whole
    assert 1e-7 < parts.deviation(Off, job, whole) < 1e-4


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
    build = lambda model: CheckedWorkload(Littering(Job(model, "cpu", 1, "float32")), model)  # noqa: E731
    parts.PartTimer(build, 4).time(group, 1)
    timed = calls[calls.index("collected") :]
    assert timed == ["collected", "called"] * (len(timed) // 2)
    assert len(timed) >= 2 * 2 * 3 * len(group)


def test_a_resumed_run_goes_on_with_the_parts(run, tmp_path):
    file = tmp_path / "r.json"
    found = run("reference", layers=True, model=named("PLAIN"), json=file)
    again = replace(found, settings=replace(found.settings, rounds=2))
    again.results[0].status = "pending"
    again.replace(file)
    resumed = crossbench.resume(file)
    times = resumed.results[0].parts["conv1"].times
    assert [time.round for time in times] == [1, 2]
