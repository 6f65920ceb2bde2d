"""Prove that a workload does the same work as the NumPy float64 reference, tensor by tensor.

Both get the same weights and the same few batches, and train by `train_epoch`, the very call
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

from ..adapters.reference import ReferenceWorkload, global_norm
from ..data import synthetic
from ..models import Model, Weights
from ..models.layers import BatchNorm, Conv, Dense, Dropout, Flatten, Layer
from ..models.shortened import shortened
from ..models.training import SGD, Optimizer, SoftmaxCrossEntropy
from ..results.records import FLOAT64_BOUND, Parity
from ..workload import Batch, Job, Workload
from . import dropout
from .batches import ArrayBatches, StreamedBatches

PRECISIONS = ("float64", "float32")
STEPS, BATCH_SIZE = 4, 64
"""Several steps, so that the form of the momentum matters. The gradients are taken over all 256
examples at once: at a near tie (two almost equal values in a window of a max-pool) NNlib's float32
may choose the other value. Over 16 pictures a single near tie moves the LeNet's first gradient by
up to 4e-2 (Flux 0.16.9, NNlib 0.9.36, CPU)."""
MIN_BATCH_SIZE, MAX_FLOPS = 4, 2e10
"""A model that takes more FLOPs than this for these examples gets smaller batches, but none too
small for a batch norm."""
LEARNING_RATE_SCALE = 1e-3
"""Factor of the learning rate in the proof: Adam makes a full-size step out of a gradient that is
only rounding, such as that of a bias before a batch norm."""
LARGE_INPUT_FACTOR, LARGE_BATCH_NORM_FACTOR = 32, 8
"""Factors of the activations in the second set of steps, where a saturation (ReLU6) or a clipped
gradient shows. The first multiplies pictures, or, where the inputs are token numbers, the weights
of the first layer; the second multiplies the weights of each batch norm."""
GRADIENT_PREFIX, LOSSES_NAME = "gradient of ", "losses of the steps"
TRAINED_SUFFIXES = (f" after {STEPS} steps", f" after {STEPS} steps from large values")
"""End of the names of the weights after the first and after the second set of steps."""
SEED = 0
"""Seed of the proof's weights and examples, whatever the run's seed, so that the verdict depends on
the frameworks alone. In float32 Flux deviates by 1.6e-3 to 1.13e-2 with the seeds 0 to 16, by
5.6e-3 with this one (the LeNet). If a max-pool has near ties in float64 too, the next seed is
tried (see near_ties)."""
CHANCE_FACTOR = 10.0
"""A framework may differ from the reference in float64 by so many times what the reference differs
from itself where it adds up in another order, or by 1e-9."""
NEGLIGIBLE_GRADIENT = 1e-10
"""A gradient whose norm is a smaller part of the norm of all gradients is only rounding."""


def _one_layer_model(name: str, input_shape: tuple[int, ...], *layers: Layer) -> Model:
    return Model(
        name, input_shape, layers, SoftmaxCrossEntropy(), SGD(0.1), BATCH_SIZE, "the proof"
    )


# the sizes suit tensor cores; a stride of 2 rules out Winograd's and the FFT's algorithms, which
# are less precise than a sum of products
PRECISION_MODELS = {
    "convolution": _one_layer_model(
        "convolution", (64, 17, 17), Conv(64, (3, 3), stride=(2, 2)), Flatten()
    ),
    "matrix multiplication": _one_layer_model("matrix_multiplication", (1024,), Dense(1024)),
}


@dataclass(frozen=True)
class ReferenceTensors:
    """Hold the reference's float64 tensors, their seed, and the deviations of its own float32.

    The tensors are in files that several processes map. scales: by precision, what the difference
    of each tensor is divided by. rounding_only: parameters whose gradient is only rounding.
    """

    directory: Path
    names: list[str]
    seed: int
    scales: dict[str, dict[str, float]]
    rounding_only: list[str]
    float32: dict[str, float | None] = field(default_factory=dict)

    def tensors(self) -> Weights:
        """Return the tensors by name, mapped from their files."""
        return {
            name: np.load(self.directory / f"{index}.npy", mmap_mode="r")
            for index, name in enumerate(self.names)
        }

    def deviations(self, observed: Weights, dtype: str) -> dict[str, float | None]:
        """Return the deviation of each tensor, None where it is not finite.

        Raises ValueError where a tensor is missing or has another shape.
        """
        return compare(observed, self.tensors(), self.scales[dtype])


def compute_reference(model: Model, directory: Path) -> ReferenceTensors:
    """Return the tensors that every framework must reproduce; creates the directory for them."""
    model = proof_model(model)
    for seed in count(SEED):
        workload = ReferenceWorkload(Job(model, "cpu", 1, "float64"))
        tensors = collect_tensors(workload, model, seed, "float64")
        if not workload.near_ties:
            break
    directory.mkdir()
    for index, array in enumerate(tensors.values()):
        np.save(directory / f"{index}.npy", array)
    rounding_only = rounding_only_gradients(tensors)
    by_precision = scales(model, tensors, seed, rounding_only)
    for name, size in differences_by_chance(workload, model, seed, tensors).items():
        by_chance = CHANCE_FACTOR / FLOAT64_BOUND * size
        by_precision["float64"][name] = max(by_precision["float64"][name], by_chance)
    reference = ReferenceTensors(directory, list(tensors), seed, by_precision, rounding_only)
    single = ReferenceWorkload(Job(model, "cpu", 1, "float32"))
    float32 = reference.deviations(collect_tensors(single, model, seed, "float32"), "float32")
    return replace(reference, float32=float32)


def rounding_only_gradients(tensors: Weights) -> list[str]:
    """Return the parameters whose gradients are only rounding."""
    norms = {
        name.removeprefix(GRADIENT_PREFIX): np.linalg.norm(array)
        for name, array in tensors.items()
        if name.startswith(GRADIENT_PREFIX)
    }
    bound = NEGLIGIBLE_GRADIENT * math.hypot(*norms.values())
    return [name for name, size in norms.items() if size < bound]


def differences_by_chance(
    workload: Workload, model: Model, seed: int, tensors: Weights
) -> dict[str, float]:
    """Return by how much the weights after the steps differ where the examples of each batch are
    added up in another order, which changes nothing but the rounding.

    Adam makes a step out of rounding where a part of a gradient is nothing else, such as that of a
    bias whose channel is positive in all places, before a batch norm: a framework may then be as
    far from the reference. Empty for SGD, whose step is as small as the gradient.
    """
    if isinstance(model.optimizer, SGD):
        return {}
    weights, batches = proof_weights(model, seed), proof_batches(model, seed)
    masks = {name: mask[:, ::-1] for name, mask in (batches.masks or {}).items()}
    turned = replace(
        batches, inputs=batches.inputs[:, ::-1], labels=batches.labels[:, ::-1], masks=masks
    )
    found = train_from_both(workload, model, weights, turned, "float64")
    return {
        name: norm(name, array - tensors[name])
        for name, array in found.items()
        if name.endswith(TRAINED_SUFFIXES)
    }


def scales(
    model: Model, tensors: Weights, seed: int, rounding_only: list[str]
) -> dict[str, dict[str, float]]:
    """Return what the difference of each tensor is divided by, by precision: its norm.

    The scale of a gradient that is only rounding is the norm of all gradients. In float64 the scale
    of a weight after the steps is its change, unless that is by chance: weight decay or a wrong
    schedule changes the weight little. In float32 the weight's own rounding would hide that, so its
    norm is the scale there, and weights that change by chance are left out: Adam makes a full-size
    change out of rounding.
    """
    norms = {name: norm(name, array) for name, array in tensors.items()}
    gradients = math.hypot(*(n for name, n in norms.items() if name.startswith(GRADIENT_PREFIX)))
    norms |= {f"{GRADIENT_PREFIX}{name}": gradients for name in rounding_only}
    start = proof_weights(model, seed)
    changes = {
        f"{name}{suffix}": norm(suffix, tensors[f"{name}{suffix}"] - before)
        for suffix, weights in zip(
            TRAINED_SUFFIXES, (start, large_weights(model, start)), strict=True
        )
        for name, before in weights.items()
        if name not in rounding_only
    }
    left_out = {f"{name}{suffix}" for name in rounding_only for suffix in TRAINED_SUFFIXES}
    float32 = {name: value for name, value in norms.items() if name not in left_out}
    return {"float32": float32, "float64": norms | changes}


@dataclass(frozen=True)
class Observation:
    """Hold what a workload did in the proof, from the weights and examples of a seed.

    The other fields are those of Parity.
    """

    seed: int
    tensors: dict[str, Weights]
    """The tensors by precision, and by name."""
    full_float32: dict[str, float | None]
    dropout: dict[str, float | None]


def observe(build: Callable[[Job], Workload], job: Job, seed: int = SEED) -> Observation:
    """Build the workload in both precisions and return what it does, without the reference."""
    return Observation(
        seed,
        {dtype: run_workload(build, replace(job, dtype=dtype), seed) for dtype in PRECISIONS},
        full_float32(build, job) if job.device == "gpu" else {},
        dropout.probe(build, job),
    )


def judge(observed: Observation, reference: ReferenceTensors) -> Parity:
    """Return the deviations from the reference, which has the same seed.

    Raises ValueError where a tensor is missing or has another shape than the reference's.
    """
    float64, float32 = (
        reference.deviations(observed.tensors[dtype], dtype) for dtype in PRECISIONS
    )
    return Parity(
        float64=float64,
        float32=float32,
        reference_float32=reference.float32,
        full_float32=observed.full_float32,
        dropout=observed.dropout,
    )


def prove(build: Callable[[Job], Workload], job: Job, reference: ReferenceTensors) -> Parity:
    """Return the deviations of the workload that `build` makes; see `judge`."""
    return judge(observe(build, job, reference.seed), reference)


def full_float32(build: Callable[[Job], Workload], job: Job) -> dict[str, float | None]:
    """Return how far a float32 convolution and matrix multiplication are from float64, by name.

    A GPU may round their operands to TensorFloat-32, which the other float32 tensors do not reveal.
    """
    return {name: _output_deviation(build, job, model) for name, model in PRECISION_MODELS.items()}


def _output_deviation(build: Callable[[Job], Workload], job: Job, model: Model) -> float | None:
    random = np.random.default_rng(SEED)
    inputs = random.normal(size=(BATCH_SIZE, *model.input_shape)).astype(np.float32)
    shapes = {name: parameter.shape for name, parameter in model.parameters.items()}
    weights = {n: random.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}
    outputs: list[np.ndarray] = []
    for make, dtype in ((build, "float32"), (ReferenceWorkload, "float64")):
        workload = make(replace(job, model=model, dtype=dtype))
        workload.load_weights({name: array.astype(dtype) for name, array in weights.items()})
        outputs.append(workload.predict(inputs.astype(dtype)))
    observed, expected = outputs
    return deviation("output", observed, expected, norm("output", expected))


def run_workload(build: Callable[[Job], Workload], job: Job, seed: int = SEED) -> Weights:
    """Build the workload of the proof's model and return its tensors by name."""
    model = proof_model(job.model)
    return collect_tensors(build(replace(job, model=model)), model, seed, job.dtype)


def collect_tensors(workload: Workload, model: Model, seed: int, dtype: str) -> Weights:
    """Return all tensors that are compared, by name, of a workload of the proof's model."""
    weights, batches = proof_weights(model, seed), proof_batches(model, seed, dtype)
    workload.load_weights(cast(weights, dtype))
    whole = concatenate(batches)
    loss, gradients = workload.loss_and_gradients(whole)
    tensors = {"logits": workload.predict(whole.inputs), "loss": np.array(loss)}
    tensors |= {f"{GRADIENT_PREFIX}{name}": array for name, array in gradients.items()}
    workload.place(batches)
    tensors["logits of an epoch"] = workload.predict_epoch()
    tensors["logits of single batches"] = np.stack(list(workload.predict_batches()))
    return tensors | train_from_both(workload, model, weights, batches, dtype)


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


def cast(weights: Weights, dtype: str) -> Weights:
    """Return the weights in another dtype."""
    return {name: array.astype(dtype) for name, array in weights.items()}


def large_weights(model: Model, weights: Weights) -> Weights:
    """Return the weights of the second set of steps (see LARGE_INPUT_FACTOR)."""
    norms = (named for named in model.all_layers() if isinstance(named.layer, BatchNorm))
    factors: dict[str, int] = {f"{named.name}.weight": LARGE_BATCH_NORM_FACTOR for named in norms}
    if model.vocabulary is not None:
        factors[next(iter(weights))] = LARGE_INPUT_FACTOR
    return {name: array * factors.get(name, 1) for name, array in weights.items()}


def proof_model(model: Model) -> Model:
    """Return the model with smaller steps, and with no more layers than the proof needs."""
    smaller = shortened(model)
    return replace(smaller, optimizer=proof_optimizer(smaller))


def proof_optimizer(model: Model) -> Optimizer:
    """Return the model's optimizer for the proof: with smaller steps, a schedule whose phases all
    show, and a bound of the gradients' norm that clips those of one set of steps alone.
    """
    optimizer = model.optimizer.with_scaled_learning_rate(LEARNING_RATE_SCALE)
    if optimizer.schedule is not None:
        optimizer = replace(optimizer, schedule=optimizer.schedule.shortened(STEPS))
    if optimizer.clip_norm is None:
        return optimizer
    workload = ReferenceWorkload(Job(model, "cpu", 1, "float64"))
    batch, weights = next(iter(proof_batches(model))), proof_weights(model)
    norms = []
    for start in (weights, large_weights(model, weights)):
        workload.load_weights(start)
        norms.append(global_norm(workload.loss_and_gradients(batch)[1]))
    return replace(optimizer, clip_norm=math.sqrt(norms[0] * norms[1]))


def proof_weights(model: Model, seed: int = SEED) -> Weights:
    """Return the initial weights, with random values added to arrays that are constant.

    So a bias that an adapter forgets to load, or running statistics that it does not use, shows.
    The values are exact in float32, so a float32 that is really float64 shows too.
    """
    random = np.random.default_rng([seed, 65])
    return {
        name: array
        if np.ptp(array)
        else (array + random.uniform(-0.1, 0.1, array.shape)).astype(np.float32)
        for name, array in model.initial_weights(seed).items()
    }


def proof_batches(model: Model, seed: int = SEED, dtype: str = "float64") -> ArrayBatches:
    """Return STEPS batches of examples like those of the model's data, with dropout masks.

    Pictures have no equal neighbours: at a tie in a max-pool, the gradient may rightly go to any of
    the tied values. The batches are streamed if the timed ones are, so the same code is proved.
    """
    random = np.random.default_rng([seed, 64])
    size = batch_size(model)
    inputs, labels = synthetic.make_examples(model.data, STEPS * size, random, model.vocabulary)
    if model.vocabulary is None:
        inputs = inputs.astype(dtype)
    if model.classes is None:
        labels = labels.astype(dtype)
    masks = {
        named.name: random.random((STEPS, size, *named.input_shape)) >= named.layer.rate
        for named in model.all_layers()
        if isinstance(named.layer, Dropout)
    }
    kind = ArrayBatches if model.data.augmentation is None else StreamedBatches
    inputs, labels = (array.reshape(STEPS, size, *array.shape[1:]) for array in (inputs, labels))
    return kind(inputs, labels, masks)


def batch_size(model: Model) -> int:
    """Return the size of the proof's batches."""
    affordable = int(MAX_FLOPS / STEPS / max(1, model.training_flops))
    return max(MIN_BATCH_SIZE, min(BATCH_SIZE, affordable))


def concatenate(batches: ArrayBatches) -> Batch:
    """Return all batches as a single one."""

    def joined(array: np.ndarray) -> np.ndarray:
        return array.reshape(-1, *array.shape[2:])

    masks = {name: joined(array) for name, array in (batches.masks or {}).items()}
    return Batch(joined(batches.inputs), joined(batches.labels), masks)


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
