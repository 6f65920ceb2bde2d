"""The variants that take long to compile: each does the same work as the reference, on few models.

The suite of every adapter runs over the others, and over these by hand: --adapters jax:tuned.
"""

from dataclasses import replace

import numpy as np
import pytest
from small_models import SMALL_MODELS

from crossbench import adapters
from crossbench.engine import parity
from crossbench.engine.batches import ArrayBatches, StreamedBatches
from crossbench.models import Branches, Dropout
from crossbench.workload import Job


@pytest.fixture
def build(request, installed):
    """Return a function that builds the variant, whatever variant the job names."""
    framework, variant = adapters.split(request.param)
    adapter = installed(framework)
    return lambda job: adapter.build(replace(job, variant=variant))


@pytest.mark.long
@pytest.mark.parametrize("build", ["torch:compile", "jax:tuned", "jax:scan"], indirect=True)
def test_it_agrees_with_the_reference(build, small_model, expected):
    """With a pool, a dropout, and a class of the row's own module that needs its globals."""
    twice = Branches(((), ()), "concatenate")
    layers = (*small_model.layers[:3], Dropout(0.3), twice, *small_model.layers[3:])
    model = replace(small_model, name="dropped_pool", layers=layers)
    proof = parity.prove(build, Job(model, "cpu", 2, "float32"), expected(model))
    assert proof.agrees, proof.disagreement


@pytest.mark.long
@pytest.mark.parametrize("build", ["torch:compile"], indirect=True)
def test_a_recurrent_layer_compiles(build, expected):
    """TorchDynamo of PyTorch 2.15 fails at `super().forward` of an nn.LSTM."""
    model = SMALL_MODELS["bidirectional"]
    proof = parity.prove(build, Job(model, "cpu", 2, "float32"), expected(model))
    assert proof.agrees, proof.disagreement


@pytest.mark.parametrize(
    "build", [pytest.param("jax:tuned", marks=pytest.mark.long), "jax:scan"], indirect=True
)
def test_streamed_batches_and_a_new_start_train_the_same(build, small_model):
    workload = build(Job(small_model, "cpu", 2, "float32"))
    random = np.random.default_rng(0)
    inputs = random.random((3, 20, *small_model.input_shape), np.float32)
    data = inputs, random.integers(0, small_model.classes, (3, 20))
    losses = []
    for kind in (ArrayBatches, StreamedBatches, ArrayBatches):
        workload.load_weights(small_model.initial_weights(0))
        workload.place(kind(*data))
        losses.append(workload.train_epoch())
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-5)
    assert (workload.train_epoch() != losses[0]).all()  # it goes on from the weights that it has
