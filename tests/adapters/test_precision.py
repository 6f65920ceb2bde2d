"""Products in bfloat16: the mixed precision of each adapter passes its proof, and the faults that
are seen in the wild, planted in PyTorch, JAX and Keras, are caught. --adapters names others.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from crossbench import models
from crossbench.adapters.reference import rounded
from crossbench.engine import parity
from crossbench.inputs.names import BFLOAT16, FLOAT32
from crossbench.workload import Job

pytestmark = pytest.mark.short(adapter_name=("torch",))

THREADS = 2
MODEL = models.get("mnist_mlp")
EACH_MODEL = pytest.mark.parametrize(
    "model",
    [
        MODEL,
        *(
            pytest.param(models.get(name), marks=pytest.mark.long)
            for name in ("lenet", "mlp7_relu")
        ),
    ],
    ids=lambda model: model.name,
)


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    """Return a function from a model to its reference in bfloat16."""
    directory, found = tmp_path_factory.mktemp("expected"), {}

    def reference(model):
        if model not in found:
            file = directory / f"{len(found)}.npz"
            found[model] = parity.precision_reference(model, BFLOAT16, file)
        return found[model]

    return reference


@pytest.fixture
def mixed(adapter, adapter_name):
    """Return the adapter, if it has a mixed precision."""
    if reason := adapter.lacks(BFLOAT16, "cpu"):
        pytest.skip(f"{adapter_name}: {reason}")
    return adapter


def proof(build, model, references):
    job = Job(model, "cpu", THREADS, FLOAT32, compute=BFLOAT16)
    return parity.prove_precision(build, job, references(model))


@EACH_MODEL
def test_the_mixed_precision_of_the_framework_is_proved(mixed, model, references):
    found = proof(mixed.build, model, references)
    assert found.disagreement(BFLOAT16) is None


@EACH_MODEL
def test_a_row_in_float32_is_not_one_in_bfloat16(mixed, model, references):
    found = proof(lambda job: mixed.build(replace(job, compute=FLOAT32)), model, references)
    assert "are computed in a higher precision than bfloat16" in found.disagreement(BFLOAT16)


def test_a_row_in_bfloat16_is_not_one_in_float32(mixed, expected):
    job = Job(MODEL, "cpu", THREADS, FLOAT32, compute=BFLOAT16)
    assert "in float32" in parity.prove(mixed.build, job, expected(MODEL)).disagreement


class Wrong:
    """Trains as a workload does, but for a fault after each step."""

    def __init__(self, workload, change):
        self.workload, self.change = workload, change

    def __getattr__(self, name):
        return getattr(self.workload, name)

    def train_epoch(self):
        batches, losses = self.workload.batches, []
        for batch in batches:
            self.workload.batches = [batch]
            losses.append(self.workload.train_epoch())
            self.change(self.workload)
        self.workload.batches = batches
        return np.concatenate(losses)


def round_weights(workload):
    """Keep the weights in bfloat16, and the optimizer's state as it is."""
    change_variables(workload, weights=True)


def round_state(workload):
    """Keep the optimizer's state in bfloat16."""
    change_variables(workload, weights=False)


def change_variables(workload, weights):
    """Round the weights of a workload, or the state of its optimizer, in place."""
    framework = type(workload).__module__.split(".")[2]
    if framework == "torch":
        import torch

        state = [t for s in workload.optimizer.state.values() for t in s.values()]
        for tensor in workload.trained if weights else state:
            if torch.is_tensor(tensor) and tensor.ndim:
                tensor.data.copy_(tensor.data.bfloat16())
    elif framework == "jax":
        import jax
        import jax.numpy as jnp

        def bfloat16(leaf):
            is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
            return jnp.asarray(rounded(np.asarray(leaf), BFLOAT16)) if is_float else leaf

        name = "parameters" if weights else "state"
        setattr(workload, name, jax.tree.map(bfloat16, getattr(workload, name)))
    else:
        kept = {id(workload.optimizer._learning_rate), id(workload.optimizer.iterations)}
        state = [v for v in workload.optimizer.variables if id(v) not in kept]
        for variable in workload.model.trainable_variables if weights else state:
            variable.assign(rounded(np.asarray(variable), BFLOAT16))


@EACH_MODEL
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (round_weights, "are kept in bfloat16, not in float32"),
        (round_state, "the optimizer's step of"),
    ],
)
def test_weights_and_the_optimizers_state_must_be_in_float32(
    mixed, model, change, words, references
):
    def build(job):
        return Wrong(mixed.build(job), change)

    assert words in proof(build, model, references).disagreement(BFLOAT16)


CHUNK = 8
"""Terms of a sum between two roundings to bfloat16."""


def chunked(multiply, inputs, kernel, bias):
    """Return inputs times the kernel (in, out), added up in bfloat16."""
    total = bias
    for start in range(0, kernel.shape[0], CHUNK):
        part = slice(start, start + CHUNK)
        total = total + multiply(inputs[..., part], kernel[part])
    return total


def sums_in_bfloat16(framework, plant):
    """Have dense layers add up their products in bfloat16."""
    if framework == "torch":
        import torch

        def forward(self, inputs):
            with torch.autocast("cpu", enabled=False):
                arrays = (a.bfloat16() for a in (inputs, self.weight.T, self.bias))
                return chunked(torch.matmul, *arrays)

        plant.method(torch.nn.Linear, "forward", forward)
    elif framework == "jax":
        import jax.numpy as jnp
        from flax import nnx

        def call(self, inputs):
            arrays = (inputs, self.kernel[...], self.bias[...])
            return chunked(jnp.matmul, *(a.astype(jnp.bfloat16) for a in arrays))

        plant.method(nnx.Linear, "__call__", call)
    else:
        import keras

        def call(self, inputs, training=None):
            return chunked(keras.ops.matmul, inputs, self.kernel, self.bias)

        plant.method(keras.layers.Dense, "call", call)


def loss_in_bfloat16(framework, plant):
    """Have the loss computed in bfloat16."""
    original = plant.package.loss_function if framework != "torch" else None
    if framework == "torch":
        import torch
        from torch import nn

        def forward(self, logits, labels):
            with torch.autocast("cpu", enabled=False):
                return nn.functional.cross_entropy(logits.bfloat16(), labels)

        plant.method(nn.CrossEntropyLoss, "forward", forward)
    elif framework == "jax":
        import jax.numpy as jnp

        def loss_function(loss):
            computed = original(loss)
            return lambda logits, labels: computed(logits.astype(jnp.bfloat16), labels)

        plant.part("loss_function", loss_function)
    else:
        import keras

        def loss_function(loss):
            kind = keras.losses.SparseCategoricalCrossentropy
            return kind(from_logits=True, dtype="bfloat16")

        plant.part("loss_function", loss_function)


@pytest.mark.parametrize(
    ("fault", "words"),
    [(sums_in_bfloat16, "differs by"), (loss_in_bfloat16, "losses and|losses are kept|loss")],
)
def test_sums_and_losses_must_be_in_float32(mixed, plant, fault, words, references):
    fault(plant.framework, plant)
    found = proof(mixed.build, MODEL, references).disagreement(BFLOAT16)
    assert re.search(words, found)
