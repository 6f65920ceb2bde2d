"""The reference itself, against finite differences and against the definitions."""

import math
from collections import Counter
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
    forward,
    pictures,
    rounded,
)
from crossbench.engine.batches import ArrayBatches
from crossbench.engine.parity import proof_batches, proof_weights
from crossbench.models import (
    GELU,
    SGD,
    Adadelta,
    Adam,
    AdamW,
    BatchNorm,
    BinaryCrossEntropy,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    InverseTimeDecay,
    LayerNorm,
    MaxPool,
    MultiHeadAttention,
    RMSNorm,
    RMSprop,
    SoftmaxCrossEntropy,
    ToSequence,
    WarmupCosine,
)
from crossbench.models.model import _name_layers
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


def test_convolution_pool_and_dense_by_their_definitions(small_model):
    workload, weights, _ = ready(small_model)
    image = np.random.default_rng(0).random((3, 32, 32))
    conv, pool = small_model.layers[0], small_model.layers[2]
    (kh, kw), (sh, sw), (ph, pw) = conv.kernel, conv.stride, conv.padding
    padded = np.zeros((3, 32 + 2 * ph, 32 + 2 * pw))
    padded[:, ph : ph + 32, pw : pw + 32] = image
    _, height, width = conv.output_shape((3, 32, 32))
    out = np.zeros((conv.features, height, width))
    for o, i, j in np.ndindex(out.shape):
        patch = padded[:, i * sh : i * sh + kh, j * sw : j * sw + kw]
        value = (patch * weights["conv1.weight"][o]).sum() + weights["conv1.bias"][o]
        out[o, i, j] = max(value, 0)
    pooled = np.zeros(pool.output_shape(out.shape))
    for c, i, j in np.ndindex(pooled.shape):
        (h, w), (s, t) = pool.window, pool.stride
        pooled[c, i, j] = out[c, i * s : i * s + h, j * t : j * t + w].max()
    hidden = np.maximum(weights["dense1.weight"] @ pooled.ravel() + weights["dense1.bias"], 0)
    logits = weights["dense2.weight"] @ hidden + weights["dense2.bias"]
    np.testing.assert_allclose(workload.predict(image[None])[0], logits, rtol=1e-12)


def test_mean_squared_error_by_its_definition():
    workload, _, batch = ready(SMALL_MODELS["fitted"])
    differences = (workload.predict(batch.inputs) - batch.labels).ravel().tolist()
    assert len(differences) == 15
    loss = workload.loss_and_gradients(batch)[0]
    assert loss == pytest.approx(sum(d**2 for d in differences) / 15, rel=1e-12)


def test_batch_norm_by_its_definition():
    """One layer on vectors, trained for a step that moves no weight: the statistics move."""
    model = replace(
        SMALL_MODELS["plain"],
        layers=(Flatten(), Dense(4), BatchNorm(epsilon=0.1, momentum=0.7), Dense(10)),
        optimizer=SGD(learning_rate=0.0),
    )
    workload, weights, batch = ready(model)
    x = batch.inputs.reshape(5, -1) @ weights["dense1.weight"].T + weights["dense1.bias"]
    w, b = weights["batchnorm1.weight"], weights["batchnorm1.bias"]
    mean, variance = x.sum(0) / 5, ((x - x.sum(0) / 5) ** 2).sum(0) / 5
    trained = w * (x - mean) / np.sqrt(variance + 0.1) + b
    logits = trained @ weights["dense2.weight"].T + weights["dense2.bias"]
    shifted = np.exp(logits)
    loss = -np.log(shifted[range(5), batch.labels] / shifted.sum(1)).mean()
    workload.place(ArrayBatches(batch.inputs[None], batch.labels[None]))
    np.testing.assert_allclose(workload.train_epoch(), [loss], rtol=1e-12)
    after = workload.weights()
    old_mean, old_var = weights["batchnorm1.running_mean"], weights["batchnorm1.running_var"]
    new_mean = 0.7 * old_mean + 0.3 * mean
    new_var = 0.7 * old_var + 0.3 * ((x - mean) ** 2).sum(0) / 4
    np.testing.assert_allclose(after["batchnorm1.running_mean"], new_mean, rtol=1e-12)
    np.testing.assert_allclose(after["batchnorm1.running_var"], new_var, rtol=1e-12)
    predicted = w * (x - new_mean) / np.sqrt(new_var + 0.1) + b
    np.testing.assert_allclose(
        workload.predict(batch.inputs),
        predicted @ weights["dense2.weight"].T + weights["dense2.bias"],
        rtol=1e-12,
    )


def one_layer(layer, shape, **weights):
    """Return the layer with its name and shapes, and a pass with its weights."""
    (named,) = _name_layers((layer,), shape, Counter())
    return named, Pass({f"{named.name}.{n}": w for n, w in weights.items()}, training=True)


@pytest.mark.parametrize("tanh", [False, True])
def test_gelu_by_its_definition(tanh):
    """Its values and its slopes, and at the ends."""
    named, run = one_layer(GELU(tanh=tanh), (7,))
    x = np.array([[-40.0, -3.0, -1.0, 0.0, 0.5, 2.0, 40.0]])
    y, backward = forward(named.layer, named, x, run)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    exact = [value / 2 * (1 + math.erf(value / math.sqrt(2))) for value in x[0]]
    expected, rtol = (x / 2 * (1 + np.tanh(inner)), 1e-13) if tanh else ([exact], 1e-14)
    np.testing.assert_allclose(y, expected, rtol=rtol)
    ends = [forward(named.layer, named, x + step, run)[0] for step in (1e-6, -1e-6)]
    slopes = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(backward(np.ones_like(x)), slopes, rtol=0, atol=1e-8)
    single, _ = forward(named.layer, named, x.astype(np.float32), run)
    assert single.dtype == np.float32


def test_attention_by_its_definition():
    """Head by head and place by place, with a causal mask and without."""
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 4, 6))
    names = ("query", "key", "value", "output")
    weights = {f"{name}_weight": random.normal(size=(6, 6)) for name in names}
    weights |= {f"{name}_bias": random.normal(size=6) for name in names}
    for causal in (True, False):
        named, run = one_layer(MultiHeadAttention(3, causal), (4, 6), **weights)
        y, _ = forward(named.layer, named, x, run)
        for example, found in zip(x, y, strict=True):
            q, k, v = (example @ weights[f"{n}_weight"].T + weights[f"{n}_bias"] for n in names[:3])
            for place in range(4):
                seen = range(place + 1 if causal else 4)
                joined = []
                for features in (slice(0, 2), slice(2, 4), slice(4, 6)):
                    scores = [q[place, features] @ k[j, features] / math.sqrt(2) for j in seen]
                    shares = np.exp(scores) / np.exp(scores).sum()
                    joined += list(sum(s * v[j, features] for s, j in zip(shares, seen)))  # noqa: B905
                expected = weights["output_weight"] @ joined + weights["output_bias"]
                np.testing.assert_allclose(found[place], expected, rtol=1e-12)


def test_norms_of_a_place_by_their_definitions():
    random = np.random.default_rng(0)
    x, weight, bias = random.normal(size=(2, 3, 5)), random.normal(size=5), random.normal(size=5)
    named, run = one_layer(LayerNorm(0.1), (3, 5), weight=weight, bias=bias)
    y, _ = forward(named.layer, named, x, run)
    root, run_root = one_layer(RMSNorm(0.1), (3, 5), weight=weight)
    z, _ = forward(root.layer, root, x, run_root)
    for example, place in np.ndindex(2, 3):
        values = x[example, place]
        variance = ((values - values.mean()) ** 2).mean()
        expected = weight * (values - values.mean()) / math.sqrt(variance + 0.1) + bias
        np.testing.assert_allclose(y[example, place], expected, rtol=1e-12)
        expected = weight * values / math.sqrt((values**2).mean() + 0.1)
        np.testing.assert_allclose(z[example, place], expected, rtol=1e-12)


def test_the_places_of_an_image_are_in_order_of_its_rows():
    image = np.arange(24.0).reshape(1, 2, 3, 4)
    named, run = one_layer(ToSequence(), (2, 3, 4))
    y, backward = forward(named.layer, named, image, run)
    np.testing.assert_array_equal(y[0, :, 0], np.arange(12))
    np.testing.assert_array_equal(y[0, 5], [5, 17])
    np.testing.assert_array_equal(backward(y), image)


def test_smoothed_labels_over_all_places_by_their_definition():
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(2, 3, 4)), random.integers(0, 4, (2, 3))
    losses = []
    for row, label in zip(logits.reshape(6, 4), labels.ravel(), strict=True):
        logs = np.log(np.exp(row) / np.exp(row).sum())
        targets = np.full(4, 0.2 / 4) + 0.8 * (np.arange(4) == label)
        losses.append(-(targets * logs).sum())
    found, _ = reference.loss_and_gradient(SoftmaxCrossEntropy(0.2), logits, labels)
    assert found == pytest.approx(np.mean(losses), rel=1e-12)


def test_adamw_with_a_bound_and_a_schedule_by_its_definition():
    """Matrices decay and biases do not; the norm of all gradients is bounded; the rate changes."""
    optimizer = AdamW(
        *(0.1, 0.8, 0.9, 1e-3),
        weight_decay=0.3,
        matrices_only=True,
        clip_norm=0.01,
        schedule=WarmupCosine(warmup=2, steps=4, minimum=0.5),
    )
    model = replace(SMALL_MODELS["plain"], optimizer=optimizer)
    workload, weights, batch = ready(model)
    rates = [0.1 / 3, 0.2 / 3, 0.1, 0.075, 0.05, 0.05]
    expected, moments = dict(weights), {name: [0, 0] for name in weights}
    for t, rate in enumerate(rates):
        _, gradients = workload.loss_and_gradients(batch)
        norm = math.sqrt(sum((g**2).sum() for g in gradients.values()))
        assert norm > 0.01
        for name, gradient in gradients.items():
            gradient = gradient * 0.01 / norm
            m, v = moments[name]
            m, v = 0.8 * m + 0.2 * gradient, 0.9 * v + 0.1 * gradient**2
            moments[name] = [m, v]
            corrected = m / (1 - 0.8 ** (t + 1)), v / (1 - 0.9 ** (t + 1))
            step = corrected[0] / (np.sqrt(corrected[1]) + 1e-3)
            decay = 0.3 if gradient.ndim > 1 else 0
            expected[name] = expected[name] - rate * (step + decay * expected[name])
        workload.step(batch)
        for name, array in workload.weights().items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-11)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_hand(x, weights, suffix=""):
    """One sequence (length, features), gate by gate, as the docstring of LSTM has it."""
    ih, hh, bias = (weights[f"lstm1.{n}{suffix}"] for n in ("weight_ih", "weight_hh", "bias"))
    n = hh.shape[1]
    h, c = np.zeros(n), np.zeros(n)
    for value in x:
        i, f, g, o = (ih[k : k + n] @ value + hh[k : k + n] @ h + bias[k : k + n]
                      for k in range(0, 4 * n, n))  # fmt: skip
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return h


def gru_by_hand(x, weights, suffix=""):
    ih, hh, bias = (weights[f"gru1.{n}{suffix}"] for n in ("weight_ih", "weight_hh", "bias"))
    n = hh.shape[1]
    h = np.zeros(n)
    for value in x:
        r = sigmoid(ih[:n] @ value + hh[:n] @ h + bias[:n])
        z = sigmoid(ih[n : 2 * n] @ value + hh[n : 2 * n] @ h + bias[n : 2 * n])
        new = np.tanh(ih[2 * n :] @ value + bias[2 * n :] + r * (hh[2 * n :] @ h))
        h = (1 - z) * new + z * h
    return h


@pytest.mark.parametrize("name", ["bidirectional", "lettered", "gated", "gated_both_ways"])
def test_recurrent_layers_by_their_definitions(name):
    model = SMALL_MODELS[name]
    workload, weights, batch = ready(model)
    by_hand = lstm_by_hand if "lstm1.bias" in weights else gru_by_hand
    table = weights.get("embedding1.weight", np.eye(model.vocabulary))
    both_ways = model.layers[1].bidirectional
    for ids, logits in zip(batch.inputs, workload.predict(batch.inputs), strict=True):
        h = by_hand(table[ids], weights)
        if both_ways:
            h = np.concatenate([h, by_hand(table[ids][::-1], weights, "_reverse")])
        expected = weights["dense1.weight"] @ h + weights["dense1.bias"]
        np.testing.assert_allclose(logits, expected, rtol=1e-10)


def test_binary_cross_entropy_by_its_definition():
    workload, _, batch = ready(SMALL_MODELS["averaged"])
    p = sigmoid(workload.predict(batch.inputs)[:, 0])
    expected = -np.log(np.where(batch.labels == 1, p, 1 - p)).mean()
    assert workload.loss_and_gradients(batch)[0] == pytest.approx(expected, rel=1e-12)
    logits = np.array([[-1.0], [2.0]])
    np.testing.assert_array_equal(BinaryCrossEntropy().predictions(logits), [0, 1])


def test_dropout_in_training_and_in_prediction():
    workload, _, batch = ready(DROPPED)
    without = Batch(batch.inputs, batch.labels)
    assert workload.loss_and_gradients(batch)[0] != workload.loss_and_gradients(without)[0]
    nothing = {name: np.zeros_like(array) for name, array in batch.masks.items()}
    _, gradients = workload.loss_and_gradients(Batch(batch.inputs, batch.labels, nothing))
    assert not gradients["dense2.weight"].any()  # its inputs are all dropped
    assert gradients["dense2.bias"].any()


def sgd(w, gradients, rate=0.1, momentum=0.9):
    velocity = 0
    for g in gradients:
        velocity = momentum * velocity + g
        w = w - rate * velocity
    return w


def adam(w, gradients):
    m = v = 0
    for t, g in enumerate(gradients, 1):
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g**2
        w = w - 0.01 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.9**t)) + 1e-3)
    return w


def rmsprop(w, gradients):
    v = 0
    for t, g in enumerate(gradients):
        v = 0.7 * v + 0.3 * g**2
        w = w - 0.01 / (1 + 0.5 * t) * g / (np.sqrt(v) + 1e-3)
    return w


def adadelta(w, gradients):
    v = u = 0
    for g in gradients:
        v = 0.7 * v + 0.3 * g**2
        change = g * np.sqrt(u + 1e-3) / np.sqrt(v + 1e-3)
        u = 0.7 * u + 0.3 * change**2
        w = w - 0.5 * change
    return w


@pytest.mark.parametrize(
    ("optimizer", "by_hand"),
    [
        (SGD(0.1, momentum=0.9), sgd),
        (Adam(0.01, beta1=0.8, beta2=0.9, epsilon=1e-3), adam),
        (RMSprop(0.01, rho=0.7, epsilon=1e-3, schedule=InverseTimeDecay(0.5)), rmsprop),
        (Adadelta(0.5, rho=0.7, epsilon=1e-3), adadelta),
    ],
    ids=["sgd", "adam", "rmsprop", "adadelta"],
)
def test_optimizers_by_their_definitions(optimizer, by_hand):
    """One parameter's gradients, seen before each step, give its value after all of them."""
    model = replace(SMALL_MODELS["plain"], optimizer=optimizer)
    workload, weights, batch = ready(model)
    gradients = []
    for _ in range(4):
        gradients.append(workload.loss_and_gradients(batch)[1]["dense2.bias"])
        workload.place(ArrayBatches(batch.inputs[None], batch.labels[None]))
        workload.train_epoch()
    expected = by_hand(weights["dense2.bias"], gradients)
    np.testing.assert_allclose(workload.weights()["dense2.bias"], expected, rtol=1e-12)


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
        monkeypatch.setattr(pictures, "BLOCK_VALUES", values)
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
