"""Prove the gradients of the program that is timed, at the batch size of the timed run.

They are read off a training step by SGD, so that they come out of `train_epoch` itself, in the
job's precision. The batch holds a few examples of the data many times over: their mean gradient is
that of the few, which the NumPy reference computes in little time. Their places are drawn at
random, so that a part of the batch has another mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..adapters.reference import ReferenceWorkload, Rounding
from ..inputs.names import BFLOAT16, FLOAT32
from ..models import SGD, Model, Weights
from ..models.undropped import without_dropouts
from ..results.parity import GRADIENT_PREFIX, GradientParity
from ..workload import Batch, Job, Workload
from .assignment import Assignment, epoch_batches
from .batches import ArrayBatches
from .evidence import has_dropouts, reference_steps
from .parity import ExpectedTensors, sides_of_zero

LEARNING_RATE = 2.0**20
"""So large that the weights after the step are the gradient, to float32's precision."""
MAX_EXAMPLES, MAX_FLOPS = 8, 1e11
"""Different examples of the batch, at most, and the FLOPs that the reference takes for them; two
are taken even where that exceeds the FLOPs."""
SEED = 71


def is_needed(model: Model, batch_size: int) -> bool:
    """Return whether the losses of the first steps tell too little: of a single step, or of one
    whose dropout masks each framework draws.
    """
    return has_dropouts(model) or reference_steps(model, batch_size) == 1


def expected_gradients(assignment: Assignment) -> ExpectedTensors:
    """Return the gradients that every framework must reproduce, in a directory of the data's."""
    compute = assignment.job.compute
    model, few = proof_model(assignment.job.model), different_examples(assignment)
    weights = model.initial_weights(assignment.seed)
    exact = gradients(model, weights, few, "float64")
    directory = assignment.data / f"gradients {assignment.batch_size} {compute}"
    expected = ExpectedTensors.keep(directory, exact)

    def form(dtype: str, rounding: Rounding | None = None, near_zero: float = 0.0) -> Any:
        return expected.deviations(gradients(model, weights, few, dtype, rounding, near_zero))

    if compute == FLOAT32:
        forms = {"float32": form(FLOAT32)}
        for index, side in enumerate(sides_of_zero(model)):
            forms[f"near zero {index}"] = form("float64", near_zero=side)
    else:
        forms = {"operands": form(FLOAT32, Rounding(compute, False))}
        if compute == BFLOAT16:
            forms["everywhere"] = form(FLOAT32, Rounding(compute, True))
    return replace(expected, forms=forms)


def gradients(
    model: Model,
    weights: Weights,
    few: Batch,
    dtype: str,
    rounding: Rounding | None = None,
    near_zero: float = 0.0,
) -> Weights:
    """Return the reference's gradients of a batch. near_zero: of its ReLUs, see Pass."""
    workload = ReferenceWorkload(Job(model, "cpu", 1, dtype), rounding)
    workload.near_zero = near_zero
    workload.load_weights(weights)
    return _named(workload.loss_and_gradients(few)[1])


def prove(
    build: Callable[[Job], Workload], assignment: Assignment, expected: ExpectedTensors
) -> GradientParity:
    """Return how far the gradients of a training step are from the reference's."""
    job = assignment.job
    workload = build(replace(job, model=proof_model(job.model)))
    weights = job.model.initial_weights(assignment.seed)
    workload.load_weights(weights)
    workload.place(whole_batch(assignment))
    workload.train_epoch()
    after = workload.weights()
    found = {
        name: (weights[name].astype(np.float64) - after[name]) / LEARNING_RATE
        for name, parameter in job.model.parameters.items()
        if parameter.trained
    }
    return GradientParity(expected.deviations(_named(found)), expected.forms)


def _named(gradients: Weights) -> Weights:
    return {f"{GRADIENT_PREFIX}{name}": array for name, array in gradients.items()}


def proof_model(model: Model) -> Model:
    """Return the model without dropouts' chance, whose step by SGD shows the gradients."""
    return replace(without_dropouts(model), optimizer=SGD(LEARNING_RATE))


def different_examples(assignment: Assignment) -> Batch:
    """Return the different examples of the batch, each once."""
    first = next(iter(epoch_batches(assignment.of_first(1))))
    model, size = assignment.job.model, assignment.batch_size
    affordable = max(2, min(MAX_EXAMPLES, int(MAX_FLOPS / max(1, model.training_flops))))
    number = max((n for n in range(2, affordable + 1) if size % n == 0), default=size)
    return Batch(first.inputs[:number], first.labels[:number])


def whole_batch(assignment: Assignment) -> ArrayBatches:
    """Return an epoch of one batch: each different example equally often, in random places."""
    few, size = different_examples(assignment), assignment.batch_size
    places = np.random.default_rng(SEED).permutation(np.arange(size) % len(few.labels))
    return ArrayBatches(few.inputs[places][None], few.labels[places][None])
