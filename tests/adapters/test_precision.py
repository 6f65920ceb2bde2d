"""Products in bfloat16: the mixed precision of each adapter passes its proof, and the faults that
are seen in the wild, planted in PyTorch, are caught. --adapters names others.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from crossbench import models
from crossbench.engine import parity
from crossbench.inputs.names import BFLOAT16, FLOAT32
from crossbench.workload import Job

pytestmark = pytest.mark.short(adapter_name=("torch",), model=("mnist_mlp",))

THREADS = 2
MODEL = models.get("mnist_mlp")


@pytest.fixture(params=["mnist_mlp", "lenet", "mlp7_relu"])
def model(request):
    return models.get(request.param)


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    """Return a function from a model to its reference in bfloat16."""
    directory = tmp_path_factory.mktemp("expected")
    return cache(lambda m: parity.precision_reference(m, BFLOAT16, directory / m.name))


@pytest.fixture
def mixed(adapter, adapter_name):
    """Return the adapter, if it has a mixed precision."""
    if reason := adapter.lacks(BFLOAT16, "cpu"):
        pytest.skip(f"{adapter_name}: {reason}")
    return adapter


def proof(build, model, references):
    job = Job(model, "cpu", THREADS, FLOAT32, compute=BFLOAT16)
    return parity.prove_precision(build, job, references(model))


def test_the_mixed_precision_of_the_framework_is_proved(mixed, model, references):
    found = proof(mixed.build, model, references)
    assert found.disagreement(BFLOAT16) is None


def test_a_row_in_float32_is_not_one_in_bfloat16(mixed, model, references):
    found = proof(lambda job: mixed.build(replace(job, compute=FLOAT32)), model, references)
    assert "are computed in a higher precision than bfloat16" in found.disagreement(BFLOAT16)


def test_a_row_in_bfloat16_is_not_one_in_float32(mixed, expected):
    job = Job(MODEL, "cpu", THREADS, FLOAT32, compute=BFLOAT16)
    assert "in float32" in parity.prove(mixed.build, job, expected(MODEL)).disagreement


def weights_of(workload):
    return workload.trained


def state_of(workload):
    """Return the optimizer's state of each weight."""
    return [t for state in workload.optimizer.state.values() for t in state.values() if t.ndim]


@pytest.mark.parametrize(
    ("variables_of", "words"),
    [(weights_of, "are kept in bfloat16, not in float32"), (state_of, "the optimizer's step of")],
)
def test_weights_and_the_optimizers_state_must_be_in_float32(
    installed, model, references, variables_of, words
):
    """They are rounded after each step."""

    def build(job):
        workload = installed("torch").build(job)
        train_epoch = workload.train_epoch

        def train():
            batches, losses = workload.batches, []
            for batch in batches:
                workload.batches = [batch]
                losses.append(train_epoch())
                for tensor in variables_of(workload):
                    tensor.data.copy_(tensor.data.bfloat16())
            workload.batches = batches
            return np.concatenate(losses)

        workload.train_epoch = train
        return workload

    assert words in proof(build, model, references).disagreement(BFLOAT16)


CHUNK = 32
"""Terms of a sum between two roundings to bfloat16."""


@pytest.fixture
def sums_in_bfloat16(monkeypatch):
    """Have dense layers of PyTorch add up their products in bfloat16."""
    import torch

    def forward(self, inputs):
        with torch.autocast("cpu", enabled=False):
            inputs, kernel, total = (a.bfloat16() for a in (inputs, self.weight.T, self.bias))
            for start in range(0, kernel.shape[0], CHUNK):
                part = slice(start, start + CHUNK)
                total = total + inputs[..., part] @ kernel[part]
            return total

    monkeypatch.setattr(torch.nn.Linear, "forward", forward)


@pytest.fixture
def loss_in_bfloat16(monkeypatch):
    """Have PyTorch compute the loss in bfloat16."""
    import torch
    from torch import nn

    def forward(self, logits, labels):
        with torch.autocast("cpu", enabled=False):
            return nn.functional.cross_entropy(logits.bfloat16(), labels)

    monkeypatch.setattr(nn.CrossEntropyLoss, "forward", forward)


@pytest.mark.parametrize(
    ("fault", "words"), [("sums_in_bfloat16", "differs by"), ("loss_in_bfloat16", "loss")]
)
def test_sums_and_losses_must_be_in_float32(installed, request, fault, words, references):
    build = installed("torch").build
    request.getfixturevalue(fault)
    assert words in proof(build, MODEL, references).disagreement(BFLOAT16)
