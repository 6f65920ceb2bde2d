"""The reference itself, against finite differences and against PyTorch."""

from dataclasses import replace

import numpy as np
import pytest
from small_models import DROPPED, SMALL_MODELS, make_labels

from crossbench import models
from crossbench.adapters import reference
from crossbench.adapters.reference import (
    ADAPTER,
    Pass,
    ReferenceWorkload,
    Rounding,
    convolutions,
    forward,
    rounded,
)
from crossbench.engine.parity import proof_batches, proof_weights, run_workload
from crossbench.models import (
    ELU,
    GELU,
    BinaryCrossEntropy,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    HardSwish,
    MaxPool,
    ReLU,
    ReLU6,
)
from crossbench.results.parity import FLOAT64_BOUND
from crossbench.workload import Batch, Job

PIECES = replace(
    SMALL_MODELS["unbiased"],
    name="pieces",
    layers=(Conv(4, (3, 2), bias=False), GELU(), GlobalAveragePool(), Dense(2)),
)
"""Without a batch norm, so that a batch goes through it in pieces."""


def ready(model, dtype="float64"):
    """A workload of the reference, its weights, and a batch of five."""
    workload = ADAPTER.build(Job(model, "cpu", 1, dtype))
    weights = {k: v.astype(dtype) for k, v in proof_weights(model).items()}
    workload.load_weights(weights)
    first = next(iter(proof_batches(model, dtype=dtype)))
    masks = {name: array[:5] for name, array in first.masks.items()}
    return workload, weights, Batch(first.inputs[:5], first.labels[:5], masks)


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_gradients_are_those_of_finite_differences(name):
    model = SMALL_MODELS[name]
    workload, weights, batch = ready(model)
    _, gradients = workload.loss_and_gradients(batch)
    assert set(gradients) == {n for n, p in model.parameters.items() if p.trained}
    random = np.random.default_rng(0)
    step = 1e-6
    for name, gradient in gradients.items():
        direction = random.normal(size=gradient.shape)
        losses = []
        for sign in (1, -1):
            workload.load_weights(weights | {name: weights[name] + sign * step * direction})
            losses.append(workload.loss_and_gradients(batch)[0])
        numeric = (losses[0] - losses[1]) / (2 * step)
        assert numeric == pytest.approx((gradient * direction).sum(), rel=2e-5, abs=1e-9), name


EVERY_PART = ("plain", "residual", "dropped", "averaged", "bidirectional", "gated_both_ways")
EVERY_PART += ("fitted", "unbiased", "robust", "segmented", "speaking", "patched", "bent")
EVERY_PART += ("generated", "convolved", "rotated")
"""Small models that together have every layer, loss and optimizer."""


@pytest.mark.parametrize("name", EVERY_PART)
def test_it_computes_what_pytorch_computes(installed, expected, name):
    """Logits, loss and gradients, and the losses and weights of some steps."""
    model = SMALL_MODELS[name]
    right, job = expected(model), Job(model, "cpu", 1, "float64")
    observed = run_workload(installed("torch").build, job, right.seed)
    assert max(right.deviations(observed, "float64").values()) < FLOAT64_BOUND


def test_float32_adds_up_a_depthwise_gradient_term_by_term():
    layers = (Conv(2, (3, 3), groups=2), GlobalAveragePool(), Dense(3))
    model = replace(SMALL_MODELS["unbiased"], input_shape=(2, 124, 124), layers=layers)
    gradients = {}
    for dtype in ("float32", "float64"):
        workload = ReferenceWorkload(Job(model, "cpu", 1, dtype))
        workload.load_weights({n: w.astype(dtype) for n, w in proof_weights(model).items()})
        batch = next(iter(proof_batches(model, dtype=dtype)))
        gradients[dtype] = workload.loss_and_gradients(batch)[1]
    for name in ("conv1.weight", "conv1.bias"):
        single, double = gradients["float32"][name], gradients["float64"][name]
        # pairwise, as NumPy adds up, both are below 1e-6
        assert np.linalg.norm(single - double) > 3e-6 * np.linalg.norm(double)


def test_a_positive_logit_is_the_class_1():
    logits = np.array([[-1.0], [2.0]])
    np.testing.assert_array_equal(BinaryCrossEntropy().predictions(logits), [0, 1])


def test_near_ties_are_counted_and_float32_takes_the_first_of_them():
    model = replace(
        SMALL_MODELS["plain"],
        layers=(MaxPool((1, 2), stride=(1, 2)), Flatten(), Dense(10)),
    )
    image = np.zeros((1, 3, 32, 32))
    first_wins = {}
    # 1 + 1e-9 is near in float64, and equal to 1 in float32; 1 + 1e-4 is near in float32 alone
    for dtype, second, ties in (
        ("float64", 1 + 1e-9, 1),
        ("float64", 1 + 1e-4, 0),
        ("float32", 1 + 1e-9, 0),
        ("float32", 1 + 1e-4, 1),
        ("float32", 1 + 1e-2, 0),
    ):
        image[0, 0, 0, :2] = 1, second
        job = Job(model, "cpu", 1, dtype)
        named = next(model.named_layers())
        run = Pass({}, training=True)
        _, backward = forward(named.layer, named, image.astype(job.dtype), run)
        assert run.near_ties == ties, (dtype, second)
        gradient = backward(np.ones((1, 3, 32, 16)))
        first_wins[dtype, second] = gradient[0, 0, 0, 0] == 1
    assert list(first_wins.values()) == [False, False, True, True, False]


CORNERS = [
    (ReLU(), 0.0, (0, 1)),
    (ReLU6(), 6.0, (1, 0)),
    (HardSwish(), -3.0, (0, -0.5)),
    (HardSwish(), 3.0, (1.5, 1)),
    (ELU(2.0), 0.0, (2, 1)),
]
"""Activations with an input at which the slope has a step, and the slopes below and over it."""


@pytest.mark.parametrize(("layer", "corner", "slopes"), CORNERS)
def test_rounding_may_move_an_input_over_a_corner(layer, corner, slopes):
    assert corner in layer.corners
    inputs = np.array([[corner, 1.0]])
    for near_zero, slope in zip((1e-5, -1e-5), slopes, strict=True):
        run = Pass({}, training=True, near_zero=near_zero)
        _, backward = forward(layer, None, inputs, run)
        assert backward(np.ones((1, 2)))[0, 0] == pytest.approx(slope)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["dropped", "pieces"])
def test_a_large_batch_is_the_sum_of_its_parts(monkeypatch, name, dtype):
    """Of the parts of a batch, and of the blocks of pictures in a convolution."""
    model, random = {"dropped": DROPPED, "pieces": PIECES}[name], np.random.default_rng(0)
    masks = {
        named.name: random.random((21, *named.input_shape)) >= named.layer.rate
        for named in model.all_layers()
        if isinstance(named.layer, Dropout)
    }
    inputs = random.random((21, *model.input_shape)).astype(dtype)
    batch = Batch(inputs, make_labels(model, (21,), random, dtype), masks or None)

    def computed(part, values):
        monkeypatch.setattr(reference, "PIECE_SIZE", part)
        monkeypatch.setattr(convolutions, "BLOCK_VALUES", values)
        workload = ReferenceWorkload(Job(model, "cpu", 1, dtype))
        workload.load_weights(model.initial_weights(0))
        return workload.loss(batch), *workload.loss_and_gradients(batch)

    alone, loss, gradients = computed(100, 10**9)
    tolerance = {"rtol": 1e-4, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-9}
    for part, values in ((100, 1), (8, 10**9), (8, 1)):
        found = computed(part, values)
        np.testing.assert_allclose(found[:2], (alone, loss), **tolerance)
        for parameter, gradient in gradients.items():
            np.testing.assert_allclose(found[2][parameter], gradient, **tolerance)


def test_rounding_to_bfloat16_is_to_the_nearest_value_ties_to_even():
    step = 2.0**-7  # between 1 and 2
    values = np.array([1 + step / 2, 1 + 3 * step / 2, 1 + 0.51 * step, -1 - 0.49 * step, 0.0])
    expected = [1, 1 + 2 * step, 1 + step, -1, 0]
    assert rounded(values.astype(np.float32), "bfloat16").tolist() == expected


@pytest.mark.parametrize(("precision", "bits"), [("bfloat16", 8), ("tf32", 11)])
def test_rounding_keeps_so_many_bits(precision, bits):
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    mantissa, _ = np.frexp(rounded(values, precision))
    assert np.array_equal(mantissa * 2**bits, np.round(mantissa * 2**bits))
    assert np.abs(rounded(values, precision) / values - 1).max() <= 2.0**-bits


def test_products_are_rounded_where_it_is_asked_for():
    model = models.get("mlp7_relu")
    batch = next(iter(proof_batches(model, dtype="float32")))
    logits = []
    for rounding in (None, Rounding("bfloat16", False), Rounding("bfloat16", True)):
        workload = ReferenceWorkload(Job(model, "cpu", 1, "float32"), rounding)
        workload.load_weights(proof_weights(model))
        logits.append(workload.predict(batch.inputs))
    exact, operands, everywhere = logits
    errors = [np.linalg.norm(found - exact) / np.linalg.norm(exact) for found in logits[1:]]
    assert 1e-3 < errors[0] < errors[1] < 3e-2
    assert np.array_equal(everywhere, rounded(everywhere, "bfloat16"))
    assert not np.array_equal(operands, rounded(operands, "bfloat16"))
