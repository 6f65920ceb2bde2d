"""The reference itself, against finite differences and against the definitions."""

import numpy as np
import pytest

from crossbench.adapters.reference import ADAPTER
from crossbench.engine.parity import parity_batches
from crossbench.workload import Job


@pytest.mark.parametrize("model_name", ["lenet", "small_model"])
def test_gradients_are_those_of_finite_differences(model_name, request):
    model = request.getfixturevalue(model_name)
    batches = parity_batches(model)
    inputs, labels = batches.inputs[0, :3].astype(np.float64), batches.labels[0, :3]
    workload = ADAPTER.build(Job(model, "cpu", 1, "float64"))
    weights = {k: v.astype(np.float64) for k, v in model.initial_weights(0).items()}
    workload.load_weights(weights)
    _, gradients = workload.loss_and_gradients(inputs, labels)
    random = np.random.default_rng(0)
    step = 1e-6
    for name, gradient in gradients.items():
        direction = random.normal(size=gradient.shape)
        losses = []
        for sign in (1, -1):
            workload.load_weights(weights | {name: weights[name] + sign * step * direction})
            losses.append(workload.loss_and_gradients(inputs, labels)[0])
        numeric = (losses[0] - losses[1]) / (2 * step)
        assert numeric == pytest.approx((gradient * direction).sum(), rel=1e-5), name


def test_the_layers_by_their_definitions(small_model):
    workload = ADAPTER.build(Job(small_model, "cpu", 1, "float64"))
    weights = {k: v.astype(np.float64) for k, v in small_model.initial_weights(0).items()}
    weights["conv1.bias"] += 0.1
    workload.load_weights(weights)
    image = np.random.default_rng(0).random((3, 32, 32))
    conv, pool = small_model.layers[0], small_model.layers[2]
    (kh, kw), (sh, sw), (ph, pw) = conv.kernel, conv.stride, conv.padding
    padded = np.zeros((3, 32 + 2 * ph, 32 + 2 * pw))
    padded[:, ph : ph + 32, pw : pw + 32] = image
    _, height, width = conv.output_shape((3, 32, 32))
    out = np.zeros((conv.features, height, width))
    for o, i, j in np.ndindex(out.shape):
        patch = padded[:, i * sh : i * sh + kh, j * sw : j * sw + kw]
        out[o, i, j] = max((patch * weights["conv1.weight"][o]).sum() + 0.1, 0)
    pooled = np.zeros(pool.output_shape(out.shape))
    for c, i, j in np.ndindex(pooled.shape):
        (h, w), (s, t) = pool.window, pool.stride
        pooled[c, i, j] = out[c, i * s : i * s + h, j * t : j * t + w].max()
    hidden = np.maximum(weights["dense1.weight"] @ pooled.ravel() + weights["dense1.bias"], 0)
    logits = weights["dense2.weight"] @ hidden + weights["dense2.bias"]
    np.testing.assert_allclose(workload.predict(image[None])[0], logits, rtol=1e-12)


def test_the_optimizer_by_its_definition(small_model):
    workload = ADAPTER.build(Job(small_model, "cpu", 1, "float64"))
    weights = {k: v.astype(np.float64) for k, v in small_model.initial_weights(0).items()}
    batches = parity_batches(small_model)
    workload.load_weights(weights)
    workload.place(batches)
    other = ADAPTER.build(Job(small_model, "cpu", 1, "float64"))
    workload.train_epoch()
    state = dict(weights)
    velocities = dict.fromkeys(weights, 0)
    for inputs, labels in zip(batches.inputs, batches.labels, strict=True):
        other.load_weights(state)
        _, gradients = other.loss_and_gradients(inputs, labels)
        velocities = {n: 0.9 * velocities[n] + g for n, g in gradients.items()}
        state = {n: w - 0.01 * velocities[n] for n, w in state.items()}
    for n, w in workload.weights().items():
        np.testing.assert_allclose(w, state[n], rtol=1e-12)
