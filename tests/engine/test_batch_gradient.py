"""Test the proof of the gradients of a whole batch: a training step of the batch size of a run."""

from dataclasses import replace

import pytest
from small_models import DROPPED, PLAIN

from crossbench.adapters.reference import ReferenceWorkload, Rounding, rounded
from crossbench.data import cifar10
from crossbench.engine import batch_gradient
from crossbench.engine.assignment import Assignment, save_arrays
from crossbench.engine.batches import BatchList
from crossbench.workload import Job


@pytest.fixture
def prove(tmp_path, cifar_directory):
    """Return a function that proves what `build` makes for a model in a precision."""
    save_arrays(cifar10.load_path(cifar_directory), tmp_path)

    def proof(build, model=DROPPED, compute="float32"):
        job = Job(model, "cpu", 1, "float32", compute=compute)
        assignment = Assignment("reference", job, tmp_path, 48, 2, 0)
        expected = batch_gradient.expected_gradients(assignment)
        return batch_gradient.prove(build, assignment, expected).disagreement(compute)

    return proof


class HalfBatches(ReferenceWorkload):
    """Trains on half of each batch."""

    def place(self, batches):
        half = [
            replace(batch, inputs=batch.inputs[::2], labels=batch.labels[::2]) for batch in batches
        ]
        super().place(BatchList(half, batches.streamed))


class RoundedGradients(ReferenceWorkload):
    """Computes the loss in float32, and the backward pass in bfloat16."""

    def update(self, gradients):
        super().update({name: rounded(array, "bfloat16") for name, array in gradients.items()})


@pytest.mark.parametrize("model", [DROPPED, PLAIN])
def test_an_honest_step_agrees(prove, model):
    assert prove(ReferenceWorkload, model) is None


@pytest.mark.parametrize("fault", [HalfBatches, RoundedGradients])
def test_another_gradient_is_found(prove, fault):
    assert "gradient of " in prove(fault)


def test_in_bfloat16_a_step_is_as_inexact_as_the_precision(prove):
    def mixed(job):
        return ReferenceWorkload(job, Rounding("bfloat16", True))

    assert prove(mixed, compute="bfloat16") is None
    assert "in a higher precision than bfloat16" in prove(ReferenceWorkload, compute="bfloat16")
