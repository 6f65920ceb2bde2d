"""PyTorch tuned: pieces do the same work, and trying changes nothing.

The suite of every adapter runs over it too; there the pieces are those that happen to be fastest.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from small_models import SMALL_MODELS, make_inputs, make_labels

from crossbench.engine import parity
from crossbench.engine.batches import ArrayBatches
from crossbench.workload import Job

CUT = [name for name, model in SMALL_MODELS.items() if "BatchNorm" not in str(model.layers)]


@pytest.fixture
def adapter(installed):
    return installed("torch")


@pytest.fixture
def tuned(adapter):
    from crossbench.adapters.torch import tuned

    return tuned


def ready(adapter, model, threads=2):
    """A workload with weights and three batches of ten."""
    workload = adapter.build(Job(model, "cpu", threads, "float32", "tuned"))
    workload.load_weights(model.initial_weights(0))
    random = np.random.default_rng(0)
    inputs = make_inputs(model, (3, 10), random)
    workload.place(ArrayBatches(inputs, make_labels(model, (3, 10), random)))
    return workload


def test_it_keeps_no_source_code_since_it_takes_other_steps(adapter):
    assert not ready(adapter, SMALL_MODELS["plain"]).source_code


@pytest.mark.short(model_name=("dropped", "speaking"))
@pytest.mark.parametrize("model_name", CUT)
def test_pieces_that_do_not_divide_the_batch_agree_with_the_reference(
    adapter, tuned, monkeypatch, expected, model_name
):
    monkeypatch.setattr(tuned.TunedWorkload, "_fastest", lambda *_: 3)
    model = SMALL_MODELS[model_name]
    proof = parity.prove(adapter.build, Job(model, "cpu", 2, "float32", "tuned"), expected(model))
    assert proof.agrees, proof.disagreement


@pytest.mark.short(model_name=("dropped",))
@pytest.mark.parametrize("model_name", ["normed", "dropped"])
def test_trying_changes_nothing(adapter, tuned, monkeypatch, model_name):
    """Neither the weights, the running statistics nor the draws of the dropouts."""
    model, tried = SMALL_MODELS[model_name], []
    fastest = tuned.TunedWorkload._fastest

    def remembered(*arguments):
        tried.append(fastest(*arguments))
        return tried[-1]

    monkeypatch.setattr(tuned.TunedWorkload, "_fastest", remembered)
    workload = ready(adapter, model)
    losses = workload.train_epoch()
    (pieces,) = tried
    monkeypatch.setattr(tuned.TunedWorkload, "_fastest", lambda *_: pieces)
    np.testing.assert_allclose(ready(adapter, model).train_epoch(), losses, rtol=1e-6)


def test_it_tries_once_and_tells_what_it_chose(adapter, tuned, monkeypatch):
    monkeypatch.setattr(tuned.TunedWorkload, "_fastest", lambda *_: 8)
    workload = ready(adapter, SMALL_MODELS["plain"])
    assert "pieces of a batch" not in workload.details()
    workload.train_epoch()
    assert workload.details()["pieces of a batch"] == "8 on 2 threads"
    monkeypatch.undo()
    workload.train_epoch()
    assert workload.details()["pieces of a batch"] == "8 on 2 threads"


def test_a_batch_norm_gets_the_whole_batch(adapter):
    workload = ready(adapter, SMALL_MODELS["normed"])
    workload.train_epoch()
    assert workload.details()["pieces of a batch"] == "1"


@pytest.mark.parametrize(("seconds_of_two", "chosen"), [(0.95, 1), (0.8, 2)])
def test_pieces_have_to_be_clearly_faster(adapter, tuned, monkeypatch, seconds_of_two, chosen):
    """The clock is set: which one is faster here is not asked."""
    seconds, clock = {1: 1.0, 2: seconds_of_two, 8: 2.0}, [0.0]

    def gradients(_, pieces, *batch):
        clock[0] += seconds[pieces]

    monkeypatch.setattr(tuned, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(tuned.TunedWorkload, "_gradients", gradients)
    workload = ready(adapter, SMALL_MODELS["plain"])
    assert workload._fastest(*next(iter(workload.batches))) == chosen
