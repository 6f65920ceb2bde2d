"""Name the tensors that are compared, and measure how far one is from the reference's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...models import Model, Weights
from ...results.parity import GRADIENT_PREFIX
from ...workload import Batch, Job, Workload
from ..batches import ArrayBatches
from .examples import (
    LARGE_INPUT_FACTOR,
    SEED,
    STEPS,
    large_weights,
    proof_batches,
    proof_model,
    proof_weights,
)

PRECISIONS = ("float64", "float32")
LOSSES_NAME = "losses of the steps"

TRAINED_SUFFIXES = (f" after {STEPS} steps", f" after {STEPS} steps from large values")
"""End of the names of the weights after the first and after the second set of steps."""


def run_workload(build: Callable[[Job], Workload], job: Job, seed: int = SEED) -> Weights:
    """Build the workload of the proof's model and return its tensors by name."""
    model = proof_model(job.model)
    return collect_tensors(build(replace(job, model=model)), model, seed, job.dtype)


def collect_tensors(workload: Workload, model: Model, seed: int, dtype: str) -> Weights:
    """Return all tensors that are compared, by name, of a workload of the proof's model."""
    weights, batches = proof_weights(model, seed), proof_batches(model, seed, dtype)
    tensors = collect_untrained(workload, weights, batches, dtype)
    return tensors | train_from_both(workload, model, weights, batches, dtype)


def collect_untrained(
    workload: Workload, weights: Weights, batches: ArrayBatches, dtype: str
) -> Weights:
    """Load the weights, place the batches, and return what the workload computes of them."""
    workload.load_weights(cast(weights, dtype))
    whole = concatenate(batches)
    loss, gradients = workload.loss_and_gradients(whole)
    tensors = {"logits": workload.predict(whole.inputs), "loss": np.array(loss)}
    tensors |= {f"{GRADIENT_PREFIX}{name}": array for name, array in gradients.items()}
    workload.place(batches)
    tensors["logits of an epoch"] = workload.predict_epoch()
    tensors["logits of single batches"] = np.stack(list(workload.predict_batches()))
    return tensors


def train_from_both(
    workload: Workload, model: Model, weights: Weights, batches: ArrayBatches, dtype: str
) -> Weights:
    """Train both sets of steps, from the weights and from large values; return what they give."""
    workload.load_weights(cast(weights, dtype))
    workload.place(batches)
    tensors = _train_and_collect(workload, TRAINED_SUFFIXES[0])
    workload.load_weights(cast(large_weights(model, weights), dtype))
    if model.vocabulary is None:
        workload.place(replace(batches, inputs=LARGE_INPUT_FACTOR * batches.inputs))
    return tensors | _train_and_collect(workload, TRAINED_SUFFIXES[1])


def _train_and_collect(workload: Workload, suffix: str) -> Weights:
    """Train one epoch; return its losses, and the weights with the suffix added to their names."""
    losses = workload.train_epoch()
    trained = {f"{name}{suffix}": array for name, array in workload.weights().items()}
    return {LOSSES_NAME + suffix.removeprefix(TRAINED_SUFFIXES[0]): losses, **trained}


def concatenate(batches: ArrayBatches) -> Batch:
    """Return all batches as a single one."""

    def joined(array: np.ndarray) -> np.ndarray:
        return array.reshape(-1, *array.shape[2:])

    masks = {name: joined(array) for name, array in (batches.masks or {}).items()}
    return Batch(joined(batches.inputs), joined(batches.labels), masks)


def cast(weights: Weights, dtype: str) -> Weights:
    """Return the weights in another dtype."""
    return {name: array.astype(dtype) for name, array in weights.items()}


def compare(
    observed: Weights, expected: Weights, scales: dict[str, float]
) -> dict[str, float | None]:
    """Return the deviation of each tensor that has a scale; None where it is not finite.

    Raises ValueError where a tensor is missing or has another shape than the reference's.
    """
    if observed.keys() != expected.keys():
        names = ", ".join(sorted(observed.keys() ^ expected.keys()))
        raise ValueError(f"not in both the adapter and the reference: {names}")
    return {
        name: deviation(name, observed[name], expected[name], scale)
        for name, scale in scales.items()
    }


def deviation(name: str, a: np.ndarray, b: np.ndarray, scale: float) -> float | None:
    """Return the norm of a - b, divided by the scale; None where that is not finite."""
    if a.shape != b.shape:
        raise ValueError(f"{name} has the shape {a.shape}, the reference's is {b.shape}")
    difference = norm(name, a.astype(np.float64) - b)
    ratio = 0.0 if difference == 0 else difference / scale if scale else math.inf
    return ratio if math.isfinite(ratio) else None


def norm(name: str, array: np.ndarray) -> float:
    """Return the Euclidean norm, or, for weights after the steps, the sum of absolute values.

    Adam makes a full-size change out of a gradient near 0: where rounding flips the sign of one
    value in a million, that value dominates the Euclidean norm.
    """
    return float(np.linalg.norm(array.ravel(), 1 if name.endswith(TRAINED_SUFFIXES) else 2))
