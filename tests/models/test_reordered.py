from dataclasses import replace

import numpy as np

from crossbench.adapters.reference import ReferenceWorkload
from crossbench.engine import parity
from crossbench.models import (
    GELU,
    SGD,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    MaxPool,
    Model,
    ReLU,
    Residual,
    SoftmaxCrossEntropy,
)
from crossbench.models.reordered import pool_before_relu
from crossbench.workload import Job

POOL, CONV = MaxPool((3, 2), stride=(2, 1)), Conv(4, (3, 3), padding=(1, 1))  # windows overlap
INNER = Residual((CONV, ReLU(), POOL), (POOL, CONV))
NESTED = Model(
    "nested",
    (3, 12, 10),
    (ReLU(), POOL, BatchNorm(1e-3, 0.9), ReLU(), INNER, Flatten(), Dense(10)),
    SoftmaxCrossEntropy(),
    SGD(0.1),
    20,
    "a test",
)


def kinds(layers):
    return [type(layer).__name__ for layer in layers]


def test_a_max_pool_is_before_the_relu_in_front_of_it():
    nested = pool_before_relu(NESTED)
    assert kinds(nested.layers)[:4] == ["MaxPool", "ReLU", "BatchNorm", "ReLU"]
    body, shortcut = map(kinds, nested.layers[4].branches)
    assert body == ["Conv", "MaxPool", "ReLU"]
    assert shortcut == ["MaxPool", "Conv"]


def test_a_gelu_stays_before_its_max_pool():
    """It falls and rises: the largest value may be another one behind it."""
    layers = (CONV, GELU(), POOL, Flatten(), Dense(10))
    assert pool_before_relu(replace(NESTED, layers=layers)).layers == layers


def test_values_and_gradients_stay_the_same_to_the_last_bit():
    reordered = pool_before_relu(NESTED)
    assert reordered.layers != NESTED.layers
    assert reordered.parameters == NESTED.parameters
    expected, observed = (
        parity.run_workload(ReferenceWorkload, Job(model, "cpu", 1, "float64"))
        for model in (NESTED, reordered)
    )
    for name, array in expected.items():
        np.testing.assert_array_equal(observed[name], array, err_msg=name)
