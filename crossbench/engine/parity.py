"""The proof of sameness: a workload against the NumPy float64 reference, tensor by tensor.

Both take the same weights and the same few batches, and train by `train_epoch`, the very call
that is timed. In float64 rounding cannot hide a difference in the mathematics; in float32 the
deviation is a figure of the framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .. import adapters
from ..data import synthetic
from ..data.dataset import CLASSES
from ..models import Model, Weights
from ..results.records import Parity
from ..workload import Batches, Job, Workload

STEPS, BATCH = 4, 64
"""Several steps, so that the momentum's form shows. The gradients are taken over all 256 pictures
at once: in float32 NNlib's max-pool gives near-ties to another cell, and over 16 pictures a single
one moves the LeNet's first gradient by up to 4e-2 (Flux 0.16.9, NNlib 0.9.36, CPU)."""
SEED = 0
"""Of the proof's own weights and pictures, whatever the run's: the verdict is the frameworks'.
In float32 Flux deviates by 1.6e-3 to 1.13e-2 with the seeds 0 to 16, by 5.6e-3 with this one."""


def reference(model: Model) -> Weights:
    """What is expected: the same for every framework, so it is computed once."""
    build = adapters.get(adapters.REFERENCE).build
    return observe(build, Job(model, "cpu", 1, "float64"))


def prove(build: Callable[[Job], Workload], job: Job, expected: Weights) -> Parity:
    """Build the job in both precisions and compare.

    ValueError where a tensor is missing or has another shape than the reference's.
    """

    def deviations(dtype: str) -> dict[str, float | None]:
        return compare(observe(build, replace(job, dtype=dtype)), expected)

    return Parity(float64=deviations("float64"), float32=deviations("float32"))


def parity_weights(model: Model) -> Weights:
    """The initial weights, but none all 0: a bias that an adapter forgets to load must show."""
    random = np.random.default_rng([SEED, 65])
    return {
        name: array if array.any() else random.uniform(-0.1, 0.1, array.shape).astype(array.dtype)
        for name, array in model.initial_weights(SEED).items()
    }


def parity_batches(model: Model) -> Batches:
    """STEPS batches of pictures without equal neighbours: at a tie in a max-pool, any of the
    tied cells may rightly take the gradient.
    """
    random = np.random.default_rng([SEED, 64])
    labels = random.integers(0, CLASSES, STEPS * BATCH)
    inputs = synthetic.pictures(labels, random).reshape(STEPS, BATCH, *model.input_shape)
    return Batches(inputs, labels.reshape(STEPS, BATCH))


def observe(build: Callable[[Job], Workload], job: Job) -> Weights:
    """Everything that is compared, by name."""
    weights, batches = parity_weights(job.model), parity_batches(job.model)
    dtype = np.dtype(job.dtype)
    workload = build(job)
    workload.load_weights({name: array.astype(dtype) for name, array in weights.items()})
    inputs = batches.inputs.astype(dtype)
    every = inputs.reshape(-1, *job.model.input_shape)
    loss, gradients = workload.loss_and_gradients(every, batches.labels.reshape(-1))
    seen = {"logits": workload.predict(every), "loss": np.array(loss)}
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
