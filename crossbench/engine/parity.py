"""The proof of sameness: a workload against the NumPy float64 reference, tensor by tensor.

Both take the same weights and the same few batches, and train by `train_epoch`, the very call
that is timed. In float64 rounding cannot hide a difference in the mathematics; in float32 the
deviation is a figure of the framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .. import adapters
from ..data import synthetic
from ..data.dataset import CLASSES
from ..models import Model, Weights
from ..results.records import Parity
from ..workload import Batches, Job, Workload

STEPS, BATCH = 4, 16  # several steps, so that the momentum's form shows


def prove(build: Callable[[Job], Workload], job: Job, seed: int) -> Parity:
    """Build the job in both precisions and compare.

    ValueError where a tensor is missing or has another shape than the reference's.
    """
    weights, batches = job.model.initial_weights(seed), parity_batches(job.model, seed)
    reference = adapters.get(adapters.REFERENCE)
    expected = observe(reference.build, _in(job, "float64", "cpu"), weights, batches)

    def deviations(dtype: str) -> dict[str, float | None]:
        return compare(observe(build, _in(job, dtype, job.device), weights, batches), expected)

    return Parity(float64=deviations("float64"), float32=deviations("float32"))


def parity_batches(model: Model, seed: int) -> Batches:
    """STEPS batches of pictures without equal neighbours: at a tie in a max-pool, any of the
    tied cells may rightly take the gradient.
    """
    random = np.random.default_rng([seed, 64])
    labels = random.integers(0, CLASSES, STEPS * BATCH)
    inputs = synthetic.pictures(labels, random).reshape(STEPS, BATCH, *model.input_shape)
    return Batches(inputs, labels.reshape(STEPS, BATCH))


def observe(
    build: Callable[[Job], Workload], job: Job, weights: Weights, batches: Batches
) -> Weights:
    """Everything that is compared, by name."""
    dtype = np.dtype(job.dtype)
    workload = build(job)
    workload.load_weights({name: array.astype(dtype) for name, array in weights.items()})
    inputs = batches.inputs.astype(dtype)
    loss, gradients = workload.loss_and_gradients(inputs[0], batches.labels[0])
    seen = {"logits": workload.predict(inputs[0]), "loss": np.array(loss)}
    seen |= {f"gradient of {name}": array for name, array in gradients.items()}
    workload.place(Batches(inputs, batches.labels))
    seen["losses of the steps"] = workload.train_epoch()
    trained = workload.weights()
    return seen | {f"{name} after {STEPS} steps": array for name, array in trained.items()}


def compare(observed: Weights, expected: Weights) -> dict[str, float | None]:
    """The deviation of each tensor; None where it is not finite."""
    if observed.keys() != expected.keys():
        odd = ", ".join(sorted(observed.keys() ^ expected.keys()))
        raise ValueError(f"not in both the adapter and the reference: {odd}")
    return {name: deviation(name, observed[name], expected[name]) for name in expected}


def deviation(name: str, a: np.ndarray, b: np.ndarray) -> float | None:
    """‖a - b‖ / ‖b‖."""
    if a.shape != b.shape:
        raise ValueError(f"{name} has the shape {a.shape}, the reference's is {b.shape}")
    difference, size = np.linalg.norm(a.astype(np.float64) - b), np.linalg.norm(b)
    ratio = 0.0 if difference == 0 else float(difference / size) if size else math.inf
    return ratio if math.isfinite(ratio) else None


def _in(job: Job, dtype: str, device: str) -> Job:
    return Job(job.model, device, job.threads, dtype)
