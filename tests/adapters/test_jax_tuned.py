"""JAX tuned: pieces on several devices of the CPU do the same work as the whole batch."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from small_models import SMALL_MODELS

from crossbench.engine import parity
from crossbench.engine.batches import ArrayBatches
from crossbench.models import (
    SGD,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    MaxPool,
    Model,
    ReLU,
    SoftmaxCrossEntropy,
)
from crossbench.workload import Job


@pytest.fixture
def adapter(installed):
    return installed("jax")


@pytest.fixture
def tuned(adapter):
    import jax

    from crossbench.adapters.jax import tuned

    assert len(jax.devices("cpu")) > 1, "see pytest_configure in conftest.py"
    return tuned


def test_a_batch_is_cut_into_equal_pieces_alone(tuned):
    assert [tuned._pieces(1000, size) for size in (500, 20, 8)] == [2, 50, 125]
    assert [tuned._pieces(64, size) for size in (32, 20, 8)] == [2, 2, 8]
    assert [tuned._pieces(7, size) for size in (3, 20, 8)] == [1, 1, 1]
    assert tuned._pieces(1, 0) == 1


POOLED = replace(
    SMALL_MODELS["plain"],
    name="pooled",
    layers=(
        Conv(4, (5, 3), padding=(1, 0)),
        ReLU(),
        MaxPool((2, 2), (2, 2)),
        Conv(3, (3, 3)),
        MaxPool((3, 2), (3, 2)),
        Flatten(),
        Dense(10),
    ),
)
"""Its max-pools, whose windows do not overlap, are computed with the convolutions before them."""


@pytest.mark.short(model_name=("fitted",))
@pytest.mark.parametrize(
    "model_name", ["plain", "pooled", "dropped", "averaged", "fitted", "bidirectional"]
)
def test_pieces_on_two_devices_agree_with_the_reference(
    adapter, tuned, monkeypatch, expected, model_name
):
    monkeypatch.setattr(tuned.TunedWorkload, "_fastest", lambda *_: 8)
    model = POOLED if model_name == "pooled" else SMALL_MODELS[model_name]
    proof = parity.prove(adapter.build, Job(model, "cpu", 2, "float32", "tuned"), expected(model))
    assert proof.agrees, proof.disagreement


def test_a_model_with_a_batch_norm_stays_as_it_is(adapter, tuned):
    """It is not cut, and its layers are Flax's own: bignet was slower with others."""
    pool = MaxPool((2, 2), (2, 2))
    for norms, cut in (((), True), ((BatchNorm(epsilon=1e-3, momentum=0.99),), False)):
        layers = (Conv(4, (3, 3)), *norms, pool, Flatten(), Dense(10))
        model = replace(SMALL_MODELS["plain"], layers=layers)
        workload = adapter.build(Job(model, "cpu", 2, "float32", "tuned"))
        assert hasattr(workload.module, "PatchConv") == cut
        assert not workload.source_code
        assert workload.cuts == cut


def test_the_devices_shares_may_differ(adapter, tuned, monkeypatch):
    monkeypatch.setattr(tuned.TunedWorkload, "_fastest", lambda *_: 3)
    model, random = SMALL_MODELS["plain"], np.random.default_rng(0)
    inputs = random.random((2, 9, *model.input_shape), np.float32)
    batches, losses = ArrayBatches(inputs, random.integers(0, model.classes, (2, 9))), []
    for variant in ("idiomatic", "tuned"):
        workload = adapter.build(Job(model, "cpu", 2, "float32", variant))
        workload.load_weights(model.initial_weights(0))
        workload.place(batches)
        losses.append([*workload.train_epoch(), *workload.train_epoch()])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert workload.details()["pieces of a batch"] == "3 on 2 CPU devices"


@pytest.mark.long
def test_the_devices_dropouts_draw_masks_of_their_own(adapter, tuned):
    layers = (Dropout(0.5), Conv(1, (1, 1)), Flatten(), Dense(2))
    model = Model("m", (1, 1000, 1), layers, SoftmaxCrossEntropy(), SGD(0.1), 2, "a test")
    workload = adapter.build(Job(model, "cpu", 2, "float32", "tuned"))
    workload.load_weights(model.initial_weights(0))
    parameters, own = workload.split()
    first, second = (
        np.asarray(model.dropout(np.ones((1, 1000))))
        for others in (own, *workload.more_others)
        for model in [
            workload.nnx.merge(workload.module.model_graphdef, parameters, others, copy=True)
        ]
    )
    assert 300 < (first != second).sum() < 700


@pytest.mark.long
def test_a_process_of_its_own_gets_its_devices_by_itself(adapter):
    """As a worker does; this process has two of them in any case."""
    program = (
        "from crossbench import adapters, models\n"
        "from crossbench.workload import Job\n"
        "for dtype in ('float64', 'float32'):\n"
        "    job = Job(models.get('{model}'), 'cpu', {threads}, dtype, 'tuned')\n"
        "    print(len(adapters.get('jax').build(job).devices))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    asked = (
        ("mnist_cnn", 1, "1"),
        ("mnist_cnn", 2, "2"),
        ("mnist_cnn", 5, "2"),
        ("mnist_mlp", 2, "1"),
    )
    for model, threads, devices in asked:
        command = [sys.executable, "-c", program.format(model=model, threads=threads)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert done.stdout.split() == [devices, devices]
