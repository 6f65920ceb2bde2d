"""Check the timed run itself: the losses of its first steps, and the change of its weights.

The proof of sameness trains on a few small batches. A framework that does the real work for those
alone is caught here: the reference trains, or predicts, the first steps of the timed epoch too. The
change of the weights in an epoch, or the losses of all predicted batches, are compared between the
frameworks.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from ..adapters.reference import ReferenceWorkload, Rounding
from ..inputs.names import BFLOAT16, FLOAT32, TF32, Compute
from ..models import SGD, Dropout, Model, Weights
from ..models.undropped import without_dropouts
from ..results.epochs import PREDICT, TRAIN, Task
from ..results.reference import FIRST_EPOCH, STEADY_EPOCH, UNDROPPED
from ..workload import Batches, Job
from .assignment import Assignment, epoch_batches
from .batches import BatchList
from .parity import sides_of_zero
from .tasks import prediction_loss

MAX_STEPS, MAX_FLOPS = 3, 3e10
"""Limits on the first steps that the reference trains. It computes the loss of the first step even
where that exceeds the FLOPs."""
STEADY_SCALE = 1 + 2**-7
"""The steady epochs of a round start from the initial weights times this factor. A framework that
replays what the first epoch computed, by its data or its weights, has other losses than the
reference."""
REPETITION_INCREMENT, DISTINCT_REPETITIONS = 2**-14, 64
"""Each repetition of an epoch, untimed ones too, adds this increment to the factor; after so many
repetitions the factors start again."""
LATENCY_SCALE = STEADY_SCALE - REPETITION_INCREMENT
"""The factor in the epoch whose batches are timed one by one."""
LATENCY_BOUNDS: dict[Compute, float] = {FLOAT32: 1e-5, TF32: 1e-3, BFLOAT16: 1e-2}
"""The largest relative difference of a batch's loss there to that in an epoch in one call, by
precision: the two may be compiled apart, and then round at other places."""
PERTURBATION: dict[Compute, float] = {FLOAT32: 2**-14, TF32: 2**-11, BFLOAT16: 2**-8}
"""By how much weights are perturbed, relative to them, to see how far rounding may move a loss. In
float32 that is 1,000 times as much as rounding, which only now and then decides over a ReLU, a
max-pool or the sign of a step of Adam: in lenet5 the losses of two honest rows went apart in the
fourth step, and those of three trainings from weights perturbed by 2⁻²¹ in the fifth or later."""
PERTURBATION_SEED = 68


def reference_steps(model: Model, batch_size: int) -> int:
    """Return how many first steps the reference trains, if the epoch has as many."""
    affordable = int(MAX_FLOPS / (batch_size * max(1, model.training_flops)))
    return max(1, min(MAX_STEPS, affordable))


def scale_weights(weights: Weights, factor: float) -> Weights:
    """Return the weights times the factor, in their dtype."""
    return {name: array * array.dtype.type(factor) for name, array in weights.items()}


def perturbed(weights: Weights, compute: Compute) -> Weights:
    """Return the weights, each a little larger or smaller by chance; see PERTURBATION."""
    random, size = np.random.default_rng(PERTURBATION_SEED), PERTURBATION[compute]
    factors = np.array([1 - size, 1 + size], np.float32)
    return {
        name: array * factors[random.integers(0, 2, array.shape, np.uint8)]
        for name, array in weights.items()
    }


def first_batches(model: Model, batches: Batches) -> BatchList:
    """Return the epoch's first batches, as many as the reference trains on."""
    first = list(islice(batches, MAX_STEPS))
    steps = reference_steps(model, batches.batch_size)
    return BatchList(first[:steps], batches.streamed)


def has_dropouts(model: Model) -> bool:
    """Return whether the frameworks draw dropout masks of their own in training."""
    return any(isinstance(named.layer, Dropout) for named in model.all_layers())


def near_zero_sides(model: Model, task: Task, batch_size: int) -> list[float]:
    """Return what `near_zero` of reference_losses is where rounding, by which an input of a ReLU
    may be on the other side of 0, moves the losses; nothing where it moves none.

    It changes a gradient, hence no prediction and no first loss. A step of SGD changes as little as
    the gradient; one of Adam may be full-size.
    """
    only_first = reference_steps(model, batch_size) == 1
    if task == PREDICT or only_first or isinstance(model.optimizer, SGD):
        return []
    return sides_of_zero(model)


def reference_losses(
    assignment: Assignment, compute: Compute | None, near_zero: float = 0.0
) -> dict[str, list[float]]:
    """Return the NumPy reference's losses of the first steps of timed epochs, by the epoch.

    To train a model with dropouts, the epoch is one whose dropouts have the rate 0. compute: what
    the reference rounds to; None for float64. near_zero: of its ReLUs, see Pass.
    """
    model, task = assignment.job.model, assignment.task
    weights = model.initial_weights(assignment.seed)
    first = first_batches(model, epoch_batches(assignment.of_first(MAX_STEPS)))
    scales = {FIRST_EPOCH: 1.0, STEADY_EPOCH: STEADY_SCALE}
    if task == TRAIN and has_dropouts(model):
        model, scales = without_dropouts(model), {UNDROPPED: 1.0}
    losses = _prediction_losses if task == PREDICT else _training_losses
    dtype = "float64" if compute is None else FLOAT32
    rounding = None if compute in (None, FLOAT32) else Rounding(compute, compute == BFLOAT16)
    workload = ReferenceWorkload(Job(model, "cpu", 1, dtype), rounding)
    workload.near_zero = near_zero
    return {
        name: losses(workload, scale_weights(weights, scale), first)
        for name, scale in scales.items()
    }


def _training_losses(
    workload: ReferenceWorkload, weights: Weights, batches: BatchList
) -> list[float]:
    workload.load_weights(weights)
    *before, last = batches
    return [*(workload.step(batch) for batch in before), workload.loss(last)]


def _prediction_losses(
    workload: ReferenceWorkload, weights: Weights, batches: Batches
) -> list[float]:
    workload.load_weights(weights)
    return [prediction_loss(workload.model, workload.predict(b.inputs), b.labels) for b in batches]
