"""Check crossbench.run from end to end, in process and from a script, with real workers."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from samples import write_cifar
from small_models import FITTED, TINY, named

import crossbench
from crossbench import models
from crossbench.data.sources import CIFAR10, Augmentation
from crossbench.engine.worker import Worker
from crossbench.inputs.errors import ResultsError, SpecError
from crossbench.models import (
    LSTM,
    Dense,
    Embedding,
    Flatten,
    MeanSquaredError,
    Model,
    OneHot,
    SoftmaxCrossEntropy,
)
from crossbench.results.statistics import MIN_ROUNDS


@pytest.fixture
def run(run):
    """Return crossbench.run with small data, a model of one layer, and one round on the CPU."""
    return partial(run, devices="cpu", model=TINY)


@pytest.mark.usefixtures("plugin")
def test_a_failure_loses_only_its_own_row(run, small_model):
    asked = {"model": small_model}  # it has a convolution, which one of them computes wrongly
    comparison = run("dies,raises,well,absent,vanished,wrong,reference", **asked)
    assert {r.cell.framework: (r.status, r.reason) for r in comparison.results} == {
        "dies": ("failed", "the worker process exited with status 7: the last words (in round 1)"),
        "raises": ("failed", "RuntimeError: out of luck (in round 1)"),
        "well": ("ran", None),
        "absent": ("unavailable", "absent is not installed: pip install absent"),
        "vanished": ("unavailable", "it is not available: no network"),
        "wrong": ("ran", None),
        "reference": ("ran", None),
    }
    _, raises, well, _, _, wrong, reference = comparison.results
    assert "in raise_error" in raises.traceback
    assert "conv1.weight" in wrong.parity.disagreement
    assert {r.name for r in comparison.ranked(well.cell.group)} == {well.name, reference.name}
    assert not comparison.complete


def test_epochs_and_progress_of_two_rounds(run):
    progress = []
    comparison = run("reference", rounds=2, epochs=3, progress=progress.append)
    (result,) = comparison.results
    assert [(e.round, e.epoch) for e in result.epochs] == [(r, e) for r in (1, 2) for e in range(4)]
    assert result.status == "ran"
    assert comparison.complete
    assert result.start_seconds > 0
    assert result.peak.gflops > 0.1
    assert result.peak.copy_gigabytes > 0.1
    assert comparison.batches(comparison.results[0]) == 5
    whats = ("first epoch", "epoch 1 of 3", "epoch 2 of 3", "epoch 3 of 3")
    said = [what.partition(";")[0] for what in progress]  # without the time that is left
    assert said[-5:] == [f"reference cpu: round 2 of 2, {what}" for what in (*whats, "checks")]


@pytest.mark.long
def test_the_epochs_of_a_round_are_interleaved_and_never_overlap(run, plugin):
    progress = []
    comparison = run("reference,well", rounds=2, epochs=2, progress=progress.append)
    said = [what.partition(";")[0] for what in progress]  # without the time that is left
    steps = [w.split(": ") for w in said if ": round " in w and "checks" not in w]
    assert [what for _, what in steps[::2]] == [what for _, what in steps[1::2]]
    assert all(a != b for (a, _), (b, _) in zip(steps[::2], steps[1::2], strict=True))
    assert len(steps) == 2 * 2 * 3
    epochs = sorted((e for r in comparison.results for e in r.epochs), key=lambda e: e.started)
    for earlier, later in pairwise(epochs):
        assert earlier.started + earlier.wall_seconds <= later.started


def test_the_seed_determines_the_weights(run):
    losses = [run("reference", seed=seed).results[0].epochs[0].losses for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_batches_limits_the_epoch_and_the_test_set(run):
    comparison = run("reference", batch_size=5, batches=3)
    data = comparison.data
    assert (data.batches(5), data.is_cut(5)) == (3, True)
    assert (data.train_examples, data.test_examples) == (100, 15)
    assert len(comparison.results[0].epochs[0].losses) == 3
    whole = run("reference", batch_size=20, batches=99)
    assert (whole.data.batches(20), whole.data.is_cut(20)) == (5, False)
    assert whole.data.test_examples == 20


def test_augmented_pictures_are_the_same_in_every_round(run):
    model = replace(TINY, data=CIFAR10(augmentation=Augmentation(shift=0.1, flip=True)))
    (result,) = run("reference", rounds=2, epochs=2, model=model).results
    assert result.status == "ran"
    losses = [epoch.losses for epoch in result.epochs]
    assert losses[:3] == losses[3:]
    assert losses[0] != losses[1] != losses[2]
    assert losses[0] != run("reference").results[0].epochs[0].losses


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"input_shape": (1, 28, 28)}, r"examples of shape \(1, 28, 28\), not \(3, 32, 32\)"),
        ({"layers": (Flatten(), Dense(3))}, "is for 3 labels, not 10, as CIFAR-10 files in"),
        (
            {"layers": (Flatten(), Dense(3)), "loss": MeanSquaredError()},
            r"is for targets of shape \(3,\), not classes, as CIFAR-10 files in .* has: name",
        ),
    ],
)
def test_data_that_does_not_fit_the_model_is_refused(run, small_model, wrong, message):
    with pytest.raises(SpecError, match=message) as caught:
        run("reference", model=replace(small_model, **wrong))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "layers", "name"),
    [
        ((5, 8, 6), (Flatten(), Dense(300)), "pictures of 8 × 6"),
        ((9,), (Embedding(50, 4), Dense(3)), "token ids"),  # a class at each place
    ],
)
def test_a_model_without_data_gets_examples_that_fit_it(shape, layers, name):
    model = Model("own", shape, layers, SoftmaxCrossEntropy(), FITTED.optimizer, 32, "the tests")
    asked = {"rounds": 1, "batches": 2, "threads": 1}
    comparison = crossbench.run("reference", "cpu", model=model, **asked)
    assert comparison.complete, comparison.results[0].reason
    assert comparison.data.name.startswith(name)


def test_a_model_that_predicts_numbers(tmp_path):
    """It has no accuracy, and is proved and trained like any other."""
    file = tmp_path / "r.json"
    asked = {"rounds": 1, "batch_size": 16, "batches": 4, "threads": 1, "json": file}
    comparison = crossbench.run(["reference", "torch"], "cpu", model=FITTED, **asked)
    assert comparison.complete, [r.reason for r in comparison.results]
    assert comparison.data.name == "normal numbers (seed 0)"
    for result in comparison.results:
        assert result.parity.agrees
        assert comparison.doubt(result) is None
        assert result.test_accuracy is None
        assert all(0.5 < loss < 5 for epoch in result.epochs for loss in epoch.losses)
    assert "accuracy" not in crossbench.table(comparison)
    assert crossbench.load(file) == comparison


@pytest.fixture
def own_text(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("She sells sea shells by the sea shore. " * 20)
    return file


def of_letters(features):
    """Return text_lstm with another number of features, for any vocabulary."""
    model = models.get("text_lstm")

    def for_vocabulary(size):
        layers = (OneHot(size), LSTM(features), Dense(size))
        return replace(model.for_vocabulary(size), layers=layers)

    return replace(model, for_vocabulary=for_vocabulary)


def test_a_text_with_more_letters_than_the_model_is_refused(own_text):
    fixed = models.get("text_lstm").for_vocabulary(5)
    with pytest.raises(SpecError, match="the model text_lstm is for a vocabulary of 5, not 12"):
        crossbench.run("reference", "cpu", model=fixed, data=own_text)


def test_a_text_determines_the_vocabulary(own_text, tmp_path):
    model, file = of_letters(4), tmp_path / "r.json"
    asked = {"data": own_text, "batch_size": 4, "batches": 2, "threads": 1, "rounds": 1}
    comparison = crossbench.run("reference", "cpu", model=model, json=file, **asked)
    assert comparison.complete, comparison.results[0].reason
    letters = len(set(own_text.read_text().lower()))
    assert comparison.model["layers"][0]["vocabulary"] == letters
    assert comparison.model["layers"][-1]["features"] == letters
    again = crossbench.resume(file, model=model)  # nothing is left to do
    assert again.results == comparison.results


def test_a_vocabulary_that_makes_the_model_too_large_is_refused(own_text):
    with pytest.raises(SpecError, match=r"text_lstm needs at least .* GiB of memory"):
        crossbench.run("reference", "cpu", model=of_letters(2**30), data=own_text, batch_size=4)


def test_a_run_of_a_model_in_a_file_is_resumed(tmp_path, cifar_directory, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("from small_models import TINY\n")
    asked = {"data": cifar_directory, "batch_size": 20, "threads": 1, "rounds": 1}
    file = tmp_path / "r.json"
    comparison = crossbench.run("reference", "cpu", model="own.py:TINY", json=file, **asked)
    assert comparison.model["name"] == "tiny"
    assert comparison.complete
    assert crossbench.resume(file).results == comparison.results
    (tmp_path / "own.py").unlink()
    with pytest.raises(SpecError, match=r"own\.py' does not exist"):
        crossbench.resume(file)


@pytest.mark.parametrize(
    ("precision", "max_seconds"),
    [(99.0, 600), pytest.param(1e-9, 1e-9, marks=pytest.mark.long)],
)
def test_auto_rounds_end_when_decided_or_late(run, precision, max_seconds):
    comparison = run("reference", rounds="auto", precision=precision, max_seconds=max_seconds)
    (result,) = comparison.results
    assert max(epoch.round for epoch in result.epochs) == MIN_ROUNDS
    assert comparison.settings.rounds is None


@pytest.mark.long
def test_auto_rounds_go_on_until_they_are_decided(run, monkeypatch):
    seen = iter([False, False, True])
    monkeypatch.setattr(crossbench.Comparison, "decided", property(lambda _: next(seen)))
    (result,) = run("reference", rounds="auto").results
    assert max(epoch.round for epoch in result.epochs) == MIN_ROUNDS + 2


SCRIPT = """
import sys, crossbench
crossbench.run("reference,well", "cpu", data=sys.argv[1], json=sys.argv[2], model=sys.argv[3],
               rounds=2, batch_size=20, threads=1, progress=lambda what: print(what, flush=True))
"""


def test_a_killed_script_without_a_main_guard_is_resumed(cifar_directory, plugin, tmp_path):
    script, file = tmp_path / "script.py", tmp_path / "r.json"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, script, cifar_directory, file, named("TINY")],
        env=os.environ | {"PYTHONPATH": f"{plugin}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    while "round 2 of 2" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = crossbench.load(file)
    again = crossbench.resume(file)
    assert again.complete
    assert len(again.resumed) == 1
    for old, new in zip(before.results, again.results, strict=True):
        assert [epoch.round for epoch in old.epochs] == [1, 1]  # what was finished is on the disk
        assert new.epochs[:2] == old.epochs
        assert [epoch.round for epoch in new.epochs] == [1, 1, 2, 2]
        assert new.test_accuracy is not None
    assert crossbench.load(file) == again


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the content of a finished run's file."""
    directory = tmp_path_factory.mktemp("finished")
    cifar, file = write_cifar(directory / "cifar"), directory / "r.json"
    asked = {"rounds": 1, "batch_size": 20, "threads": 1, "json": file}
    crossbench.run("reference", "cpu", data=cifar, model=named("TINY"), **asked)
    return file.read_text()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda c: c["machine"].update(cpu="another"), "machine"),
        (lambda c: c["data"].update(sha256="another"), "data checksum"),
        (lambda c: c.update(crossbench="99"), "crossbench version"),
        (lambda c: c["model"].update(parameters=1), "model"),
    ],
)
def test_a_run_under_other_conditions_is_not_resumed(finished, tmp_path, change, what):
    file, content = tmp_path / "r.json", json.loads(finished)
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(ResultsError, match=f"cannot resume {file}: its {what} differs"):
        crossbench.resume(file)


def test_changed_package_versions_fail_the_row(finished, tmp_path):
    file, content = tmp_path / "r.json", json.loads(finished)
    content["results"][0]["status"] = "pending"
    content["results"][0]["details"] = {"numpy": "0.1"}
    content["settings"]["rounds"] = 2
    file.write_text(json.dumps(content))
    (result,) = crossbench.resume(file).results
    assert result.status == "failed"
    assert "package versions changed since an earlier round" in result.reason


def test_each_precision_is_a_row_that_is_proved_and_has_its_own_peak(run):
    comparison = run("torch,reference", compute="float32,bfloat16")
    plain, mixed, _, unavailable = comparison.results
    assert unavailable.name == "reference cpu, bfloat16"
    assert unavailable.status == "unavailable"
    assert all(comparison.is_ranked(r) for r in (plain, mixed))
    assert all(r.peak or r.peak_problem for r in (plain, mixed))  # both are measured
    assert plain.parity.float64 == mixed.parity.float64
    assert (plain.precision, mixed.precision is None) == (None, False)
    assert comparison.float32_ratio(mixed).median > 0
    assert plain.test_loss != mixed.test_loss
    assert plain.test_loss == pytest.approx(mixed.test_loss, rel=0.05)


@pytest.mark.parametrize(
    ("target", "max_seconds", "reached"),
    [(0.001, 600, True), pytest.param(1.0, 1e-9, False, marks=pytest.mark.long)],
)
def test_training_to_an_accuracy(run, target, max_seconds, reached):
    comparison = run("reference", rounds=1, target_accuracy=target, max_seconds=max_seconds)
    (result,) = comparison.results
    *before, last = result.to_target
    assert (last.reached >= target) is reached
    assert all(epoch.reached < target for epoch in before)
    assert len(before) == 0 or reached  # the time was up after the first
    # from the initial weights, as every round
    assert result.to_target[0].reached == result.test_accuracy
    assert ("given up" in crossbench.table(comparison)) is not reached


def test_what_fails_after_the_rounds_costs_no_round(run, monkeypatch, tmp_path):
    def fail(*_) -> int:
        raise RuntimeError("out of luck")

    file = tmp_path / "r.json"
    with monkeypatch.context() as patch:
        for call in ("target_epoch", "allocated"):
            patch.setattr(Worker, call, fail)
        comparison = run("reference", json=file, target_accuracy=0.001, trace_memory=True)
    (result,) = comparison.results
    assert (result.status, comparison.is_ranked(result)) == ("ran", True)
    assert result.extra_problem == (
        "its training to the target failed: RuntimeError: out of luck; "
        "its tracing of memory failed: RuntimeError: out of luck"
    )
    assert not comparison.complete
    assert result.extra_problem in " ".join(str(comparison).split())
    assert crossbench.load(file) == comparison


@pytest.mark.usefixtures("plugin")
def test_the_memory_that_an_epoch_allocates_is_traced_after_the_rounds(run, tmp_path):
    told, file = [], tmp_path / "r.json"
    comparison = run("allocates,reference", trace_memory=True, progress=told.append, json=file)
    assert [result.allocated for result in comparison.results] == [3 * 2**20, None]
    assert told[-2:] == [
        f"{name} cpu: memory that an epoch allocates" for name in ("allocates", "reference")
    ]
    text = crossbench.table(comparison, details=True)
    assert "allocated MiB" in text
    assert crossbench.load(file) == comparison


@pytest.mark.long
def test_long_rounds_are_sampled(run, monkeypatch):
    monkeypatch.setattr("crossbench.engine.sampler.INTERVAL", 0.001)
    (result,) = run("reference", rounds=2).results
    assert {usage.round for usage in result.usage} == {1, 2}
    assert all(usage.resident_peak > 2**20 for usage in result.usage)
