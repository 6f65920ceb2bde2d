"""Prove how a workload computes in bfloat16 or TensorFloat-32.

Its distance from float64 is compared with that of the reference with the same rounding. Its
weights, its losses and its optimizer stay in float32. The steps of the optimizer are compared with
the reference's from the workload's own gradients, so that other rounding does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ...adapters.reference import ReferenceWorkload, Rounding, rounded
from ...inputs.names import BFLOAT16, Compute
from ...models import Model, Weights
from ...models.shortened import shortened
from ...results.parity import PRODUCT_PREFIX, PrecisionParity
from ...workload import Job, Workload
from .examples import SEED, STEPS, proof_batches, proof_weights
from .expected import ExpectedTensors
from .tensors import LOSSES_NAME, cast, collect_untrained
from .verdict import single_deviations


def precision_reference(model: Model, compute: Compute, directory: Path) -> ExpectedTensors:
    """Return what every framework must reproduce in a precision; creates the directory for it."""
    model = precision_model(model)
    exact = ReferenceWorkload(Job(model, "cpu", 1, "float64"))
    tensors = computed_tensors(exact, model, "float64")
    reference = ExpectedTensors.keep(directory, tensors)

    def deviations(everywhere: bool) -> dict[str, float | None]:
        build = partial(ReferenceWorkload, rounding=Rounding(compute, everywhere))
        job = Job(model, "cpu", 1, "float32")
        found = reference.deviations(computed_tensors(build(job), model, "float32"))
        return found | product_deviations(build, job)

    operands = deviations(everywhere=False)
    everywhere = deviations(everywhere=True) if compute == BFLOAT16 else operands
    return replace(reference, forms={"operands": operands, "everywhere": everywhere})


def prove_precision(
    build: Callable[[Job], Workload], job: Job, reference: ExpectedTensors
) -> PrecisionParity:
    """Return how the workload of a job computes in the job's precision."""
    model = precision_model(job.model)
    workload = build(replace(job, model=model))
    tensors = computed_tensors(workload, model, "float32")
    steps = optimizer_steps(workload, model)
    return PrecisionParity(
        observed=reference.deviations(tensors) | product_deviations(build, job),
        **reference.forms,
        optimizer=optimizer_deviations(model, steps),
        rounded=[
            *(["losses"] if _is_rounded(tensors[LOSSES_NAME], job.compute) else []),
            *(name for name, array in steps[-1].after.items() if _is_rounded(array, job.compute)),
        ],
    )


def product_deviations(build: Callable[[Job], Workload], job: Job) -> dict[str, float | None]:
    """Return how far a convolution and a matrix multiplication of many terms are from float64."""
    found = single_deviations(build, job)
    return {f"{PRODUCT_PREFIX}{name}": deviation for name, deviation in found.items()}


def precision_model(model: Model) -> Model:
    """Return the model of the proof with its own learning rate, whose steps hide no rounding."""
    smaller = shortened(model)
    optimizer = smaller.optimizer
    if optimizer.schedule is not None:
        optimizer = replace(optimizer, schedule=optimizer.schedule.shortened(STEPS))
    return replace(smaller, optimizer=optimizer)


def computed_tensors(workload: Workload, model: Model, dtype: str) -> Weights:
    """Return what the workload computes of the proof's batches, by name."""
    weights, batches = proof_weights(model, SEED), proof_batches(model, SEED, dtype)
    tensors = collect_untrained(workload, weights, batches, dtype)
    return tensors | {LOSSES_NAME: workload.train_epoch()}


@dataclass(frozen=True)
class OptimizerStep:
    """Hold the weights before and after a step of the optimizer, and the gradients."""

    before: Weights
    gradients: Weights
    after: Weights


def optimizer_steps(workload: Workload, model: Model) -> list[OptimizerStep]:
    """Train on the proof's batches, one after the other, and return the steps."""
    before = cast(proof_weights(model, SEED), "float32")
    batches, steps = proof_batches(model, SEED, "float32"), []
    workload.load_weights(before)
    for number in range(STEPS):
        workload.place(batches.some(slice(number, number + 1)))
        gradients = workload.backward_epoch()()
        workload.train_epoch()
        after = workload.weights()
        steps.append(OptimizerStep(before, gradients, after))
        before = after
    return steps


def optimizer_deviations(model: Model, steps: list[OptimizerStep]) -> dict[str, float | None]:
    """Return how far the steps are from the reference's, relative to these, by parameter: the
    largest of the steps, without what the rounding of float32 weights explains.
    """
    reference = ReferenceWorkload(Job(model, "cpu", 1, "float64"))
    reference.load_weights(cast(steps[0].before, "float64"))
    deviations = dict.fromkeys(steps[0].gradients, 0.0)
    for step in steps:
        reference.parameters |= cast(step.before, "float64")
        reference.update(cast(step.gradients, "float64"))
        for name, largest in deviations.items():
            before = step.before[name].astype(np.float64)
            expected = reference.parameters[name] - before
            difference = np.abs(step.after[name] - before - expected)
            difference = np.maximum(0, difference - np.spacing(np.abs(step.before[name])))
            size = np.abs(expected).sum()
            deviations[name] = max(largest, float(difference.sum() / size) if size else 0.0)
    return {name: value if math.isfinite(value) else None for name, value in deviations.items()}


def _is_rounded(array: np.ndarray, compute: Compute) -> bool:
    """Return whether all values are numbers of the precision, as no float32 ones are by chance."""
    values = np.asarray(array, np.float32)
    return bool(values.any()) and np.array_equal(values, rounded(values, compute))
