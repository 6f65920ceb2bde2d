"""Run a workload in the proof, and tell how far it is from the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...adapters.reference import ReferenceWorkload
from ...inputs.names import FLOAT32
from ...models import SGD, Conv, Dense, Flatten, Layer, Model, SoftmaxCrossEntropy, Weights
from ...results.parity import Parity
from ...workload import Job, Workload
from .. import dropout
from .examples import BATCH_SIZE, SEED
from .expected import BESIDE_ZERO, ExpectedTensors
from .tensors import PRECISIONS, deviation, norm, run_workload


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
        single_deviations(build, job) if job.device == "gpu" else {},
        dropout.probe(build, job),
    )


def judge(observed: Observation, reference: ExpectedTensors) -> Parity:
    """Return the deviations from the reference, which has the same seed.

    Raises ValueError where a tensor is missing or has another shape than the reference's.
    """
    float64, float32 = (
        reference.deviations(observed.tensors[dtype], dtype) for dtype in PRECISIONS
    )
    return Parity(
        float64=float64,
        float32=float32,
        reference_float32=reference.forms[FLOAT32],
        near_zero=reference.forms[BESIDE_ZERO],
        full_float32=observed.full_float32,
        dropout=observed.dropout,
    )


def prove(build: Callable[[Job], Workload], job: Job, reference: ExpectedTensors) -> Parity:
    """Return the deviations of the workload that `build` makes; see `judge`."""
    return judge(observe(build, job, reference.seed), reference)


def single_deviations(build: Callable[[Job], Workload], job: Job) -> dict[str, float | None]:
    """Return how far a convolution and a matrix multiplication are from float64, by name.

    In float32 a GPU may round their operands to TensorFloat-32, which the other tensors do not
    reveal.
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
