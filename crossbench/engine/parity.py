"""The proof of sameness: a workload against the NumPy float64 reference, tensor by tensor.

Both take the same weights and the same few batches, and train by `train_epoch`, the very call
that is timed. In float64 rounding cannot hide a difference in the mathematics; in float32 the
deviation is a figure of the framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np

from ..adapters.reference import ReferenceWorkload
from ..data import synthetic
from ..models import Model, Weights
from ..models.layers import BatchNorm, Conv, Dense, Dropout, Embedding, Flatten, Layer
from ..models.training import SGD, SoftmaxCrossEntropy
from ..results.records import Parity
from ..workload import Batch, Job, Workload
from . import dropout
from .batches import ArrayBatches, StreamedBatches

STEPS, BATCH = 4, 64
"""Several steps, so that the momentum's form shows. The gradients are taken over all 256 examples
at once: in float32 NNlib's max-pool gives near-ties to another cell, and over 16 pictures a single
one moves the LeNet's first gradient by up to 4e-2 (Flux 0.16.9, NNlib 0.9.36, CPU)."""
LEAST_BATCH, FLOPS = 4, 2e10
"""For models that take more than so many FLOPs for these examples the batches are smaller, but not
too small for a batch norm."""
SLOWER = 1e-3
"""The steps take this part of the learning rate. Adam makes a step of whole size out of a gradient
that is rounding alone, as that of a bias before a batch norm."""
LARGE_INPUTS, LARGE_NORMS = 32, 8
"""The second set of steps starts from activations so many times as large: by the pictures, or, of
numbers, by the first layer's weights; and by the weights of each batch norm. A saturation (ReLU6)
or a clipped gradient shows there."""
GRADIENT, LOSSES = "gradient of ", "losses of the steps"
AFTER = (f" after {STEPS} steps", f" after {STEPS} steps from large values")
SEED = 0
"""Of the proof's own weights and examples, whatever the run's: the verdict is the frameworks'.
In float32 Flux deviates by 1.6e-3 to 1.13e-2 with the seeds 0 to 16, by 5.6e-3 with this one (the
LeNet). Later ones are taken where a max-pool has near-ties in float64 too (see near_ties)."""
ROWS = 50_000
"""Of an embedding in the proof, at most: a row without an example in it does nothing."""
NOTHING = 1e-10
"""A gradient that is smaller than this part of all of them is rounding."""


def _product(name: str, input_shape: tuple[int, ...], *layers: Layer) -> Model:
    return Model(name, input_shape, layers, SoftmaxCrossEntropy(), SGD(0.1), BATCH, "the proof")


# of sizes that tensor cores take; a stride of 2 leaves out Winograd's and the FFT's algorithms,
# which are less precise than a sum of products
PRODUCTS = {
    "convolution": _product(
        "convolution", (64, 17, 17), Conv(64, (3, 3), stride=(2, 2)), Flatten()
    ),
    "matrix product": _product("matrix_product", (1024,), Dense(1024)),
}


@dataclass(frozen=True)
class Expected:
    """What the reference gives in float64, with which seed, and how far from it its own float32 is.

    The tensors are in files, for several processes to map. scales: by precision, what the
    difference of each tensor is divided by. by_chance: parameters whose gradient is rounding.
    """

    directory: Path
    names: list[str]
    seed: int
    scales: dict[str, dict[str, float]]
    by_chance: list[str]
    float32: dict[str, float | None] = field(default_factory=dict)

    def tensors(self) -> Weights:
        return {
            name: np.load(self.directory / f"{index}.npy", mmap_mode="r")
            for index, name in enumerate(self.names)
        }

    def deviations(self, observed: Weights, dtype: str) -> dict[str, float | None]:
        """Return the deviation of each tensor, None where it is not finite.

        Raises ValueError where a tensor is missing or has another shape.
        """
        return compare(observed, self.tensors(), self.scales[dtype])


def reference(model: Model, directory: Path) -> Expected:
    """Return what is expected of every framework; the directory is made for it."""
    model = proof_model(model)
    for seed in count(SEED):
        workload = ReferenceWorkload(Job(model, "cpu", 1, "float64"))
        tensors = seen(workload, model, seed, "float64")
        if not workload.near_ties:
            break
    directory.mkdir()
    for index, array in enumerate(tensors.values()):
        np.save(directory / f"{index}.npy", array)
    by_chance = without_gradient(tensors)
    found = scales(model, tensors, seed, by_chance)
    expected = Expected(directory, list(tensors), seed, found, by_chance)
    single = ReferenceWorkload(Job(model, "cpu", 1, "float32"))
    float32 = expected.deviations(seen(single, model, seed, "float32"), "float32")
    return replace(expected, float32=float32)


def without_gradient(tensors: Weights) -> list[str]:
    """Return the parameters whose gradients are nothing but rounding."""
    sizes = {n: np.linalg.norm(array) for n, array in tensors.items() if n.startswith(GRADIENT)}
    whole = math.hypot(*sizes.values())
    return [n.removeprefix(GRADIENT) for n, size in sizes.items() if size < NOTHING * whole]


def scales(
    model: Model, tensors: Weights, seed: int, by_chance: list[str]
) -> dict[str, dict[str, float]]:
    """Return what the difference of each tensor is divided by, by precision: its norm.

    The scale of a gradient that is rounding is the norm of all gradients. A weight after the steps
    is measured by its change, where that is more than chance: weight decay or a wrong schedule
    changes it little. In float32 its own rounding would hide that, so there its norm is the scale,
    and what changes by chance is left out: Adam makes a change of whole size out of rounding.
    """
    sizes = {name: norm(name, array) for name, array in tensors.items()}
    whole = math.hypot(*(size for name, size in sizes.items() if name.startswith(GRADIENT)))
    sizes |= {f"{GRADIENT}{name}": whole for name in by_chance}
    start = proof_weights(model, seed)
    changes = {
        f"{name}{after}": norm(after, tensors[f"{name}{after}"] - before)
        for after, weights in zip(AFTER, (start, large(model, start)), strict=True)
        for name, before in weights.items()
        if name not in by_chance
    }
    left_out = {f"{name}{after}" for name in by_chance for after in AFTER}
    float32 = {name: size for name, size in sizes.items() if name not in left_out}
    return {"float32": float32, "float64": sizes | changes}


def prove(build: Callable[[Job], Workload], job: Job, expected: Expected) -> Parity:
    """Build the job in both precisions and compare.

    Raises ValueError where a tensor is missing or has another shape than the reference's.
    """

    def deviations(dtype: str) -> dict[str, float | None]:
        observed = observe(build, replace(job, dtype=dtype), expected.seed)
        return expected.deviations(observed, dtype)

    full = full_float32(build, job) if job.device == "gpu" else {}
    return Parity(
        float64=deviations("float64"),
        float32=deviations("float32"),
        reference_float32=expected.float32,
        full_float32=full,
        dropout=dropout.probe(build, job),
    )


def full_float32(build: Callable[[Job], Workload], job: Job) -> dict[str, float | None]:
    """Return how far one float32 convolution and one matrix product are from float64, by name.

    A GPU may round their operands to TensorFloat-32, which the proof's own float32 cannot see.
    """
    return {name: _product_deviation(build, job, model) for name, model in PRODUCTS.items()}


def _product_deviation(build: Callable[[Job], Workload], job: Job, model: Model) -> float | None:
    random = np.random.default_rng(SEED)
    inputs = random.normal(size=(BATCH, *model.input_shape)).astype(np.float32)
    shapes = {name: parameter.shape for name, parameter in model.parameters.items()}
    weights = {n: random.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}
    outputs: list[np.ndarray] = []
    for made, dtype in ((build, "float32"), (ReferenceWorkload, "float64")):
        workload = made(replace(job, model=model, dtype=dtype))
        workload.load_weights({name: array.astype(dtype) for name, array in weights.items()})
        outputs.append(workload.predict(inputs.astype(dtype)))
    observed, expected = outputs
    return deviation("output", observed, expected, norm("output", expected))


def observe(build: Callable[[Job], Workload], job: Job, seed: int = SEED) -> Weights:
    """Everything that is compared, by name."""
    model = proof_model(job.model)
    return seen(build(replace(job, model=model)), model, seed, job.dtype)


def seen(workload: Workload, model: Model, seed: int, dtype: str) -> Weights:
    """Return what a workload of the proof's model gives."""
    weights, batches = proof_weights(model, seed), proof_batches(model, seed, dtype)
    workload.load_weights(cast(weights, dtype))
    every = together(batches)
    loss, gradients = workload.loss_and_gradients(every)
    found = {"logits": workload.predict(every.inputs), "loss": np.array(loss)}
    found |= {f"{GRADIENT}{name}": array for name, array in gradients.items()}
    workload.place(batches)
    found |= _trained(workload, AFTER[0])
    workload.load_weights(cast(large(model, weights), dtype))
    if model.vocabulary is None:
        workload.place(replace(batches, inputs=LARGE_INPUTS * batches.inputs))
    return found | _trained(workload, AFTER[1])


def _trained(workload: Workload, after: str) -> Weights:
    losses = workload.train_epoch()
    trained = {f"{name}{after}": array for name, array in workload.weights().items()}
    return {LOSSES + after.removeprefix(AFTER[0]): losses, **trained}


def cast(weights: Weights, dtype: str) -> Weights:
    return {name: array.astype(dtype) for name, array in weights.items()}


def large(model: Model, weights: Weights) -> Weights:
    """Return the weights of the second set of steps (see LARGE_INPUTS)."""
    norms = (named for named in model.all_layers() if isinstance(named.layer, BatchNorm))
    factors: dict[str, int] = {f"{named.name}.weight": LARGE_NORMS for named in norms}
    if model.vocabulary is not None:
        factors[next(iter(weights))] = LARGE_INPUTS
    return {name: array * factors.get(name, 1) for name, array in weights.items()}


def proof_model(model: Model) -> Model:
    """The model with slower steps, and no more rows in an embedding than the proof needs."""
    layers = tuple(
        replace(layer, vocabulary=min(layer.vocabulary, ROWS))
        if isinstance(layer, Embedding)
        else layer
        for layer in model.layers
    )
    return replace(model, layers=layers, optimizer=model.optimizer.slower(SLOWER))


def proof_weights(model: Model, seed: int = SEED) -> Weights:
    """Return the initial weights, but none the same all over: a bias that an adapter forgets to
    load, or running statistics that it does not use, must show. float32 holds them exactly, so that
    a float32 that is really float64 shows too.
    """
    random = np.random.default_rng([seed, 65])
    return {
        name: array
        if np.ptp(array)
        else (array + random.uniform(-0.1, 0.1, array.shape)).astype(np.float32)
        for name, array in model.initial_weights(seed).items()
    }


def proof_batches(model: Model, seed: int = SEED, dtype: str = "float64") -> ArrayBatches:
    """STEPS batches of examples such as the model's data has, and what each dropout keeps. Pictures
    are without equal neighbours: at a tie in a max-pool, any of the tied cells may rightly take the
    gradient. They are streamed where the model's own are: the proof goes the way that is timed.
    """
    random = np.random.default_rng([seed, 64])
    size = batch_size(model)
    inputs, labels = synthetic.examples(model.data, STEPS * size, random, model.vocabulary)
    if model.vocabulary is None:
        inputs = inputs.astype(dtype)
    kept = {
        named.name: random.random((STEPS, size, *named.input_shape)) >= named.layer.rate
        for named in model.all_layers()
        if isinstance(named.layer, Dropout)
    }
    kind = ArrayBatches if model.data.augmentation is None else StreamedBatches
    return kind(inputs.reshape(STEPS, size, *inputs.shape[1:]), labels.reshape(STEPS, size), kept)


def batch_size(model: Model) -> int:
    affordable = int(FLOPS / STEPS / max(1, model.training_flops))
    return max(LEAST_BATCH, min(BATCH, affordable))


def together(batches: ArrayBatches) -> Batch:
    """All of them as one."""

    def joined(array: np.ndarray) -> np.ndarray:
        return array.reshape(-1, *array.shape[2:])

    kept = {name: joined(array) for name, array in (batches.kept or {}).items()}
    return Batch(joined(batches.inputs), joined(batches.labels), kept)


def compare(
    observed: Weights, expected: Weights, scales: dict[str, float]
) -> dict[str, float | None]:
    """Return the deviation of each tensor that has a scale; None where it is not finite.

    Raises ValueError where a tensor is missing or has another shape than the reference's.
    """
    if observed.keys() != expected.keys():
        odd = ", ".join(sorted(observed.keys() ^ expected.keys()))
        raise ValueError(f"not in both the adapter and the reference: {odd}")
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
    """Return the Euclidean norm, or, of weights after the steps, the sum of absolute values.

    Adam makes a change of whole size out of a gradient near 0: where rounding turns the sign of one
    value in a million, the Euclidean norm holds little else.
    """
    return float(np.linalg.norm(array.ravel(), 1 if name.endswith(AFTER) else 2))
