"""NumPy, written for clarity: the reference that every framework is compared with.

Each layer is a function that gives its output and the function of its backward pass.
Checked against finite differences in tests/adapters/test_reference.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..models.layers import Conv, Dense, Flatten, Layer, MaxPool, ReLU
from ..models.model import Weights
from ..models.training import SGD, SoftmaxCrossEntropy
from ..workload import Adapter, Batches, Job, versions

Backward = Callable[[np.ndarray], tuple[np.ndarray, Weights]]
"""From the output's gradient to the input's and the parameters'."""


@singledispatch
def forward(layer: Layer, weights: Weights, x: np.ndarray) -> tuple[np.ndarray, Backward]:
    """The layer's output for (batch, *input_shape), and its backward pass."""
    raise NotImplementedError(f"the reference does not know the layer {type(layer).__name__}")


@forward.register
def _(layer: Conv, weights: Weights, x: np.ndarray) -> tuple[np.ndarray, Backward]:
    (sh, sw), (ph, pw), (kh, kw) = layer.stride, layer.padding, layer.kernel
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    patches = sliding_window_view(padded, (kh, kw), (2, 3))[:, :, ::sh, ::sw]
    kernel = weights["weight"]
    y = np.tensordot(patches, kernel, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    height, width = y.shape[2:]

    def backward(dy: np.ndarray) -> tuple[np.ndarray, Weights]:
        dpadded = np.zeros_like(padded)
        dpatches = np.tensordot(dy, kernel, ((1,), (0,)))  # batch, h, w, channel, kh, kw
        for i in range(kh):
            for j in range(kw):
                window = dpadded[:, :, i : i + sh * height : sh, j : j + sw * width : sw]
                window += dpatches[..., i, j].transpose(0, 3, 1, 2)
        dx = dpadded[:, :, ph : ph + x.shape[2], pw : pw + x.shape[3]]
        dkernel = np.tensordot(dy, patches, ((0, 2, 3), (0, 2, 3)))
        return dx, {"weight": dkernel, "bias": dy.sum((0, 2, 3))}

    return y + weights["bias"][:, None, None], backward


@forward.register
def _(layer: MaxPool, weights: Weights, x: np.ndarray) -> tuple[np.ndarray, Backward]:
    (sh, sw), (kh, kw) = layer.stride, layer.window
    windows = sliding_window_view(x, (kh, kw), (2, 3))[:, :, ::sh, ::sw]
    flat = windows.reshape(*windows.shape[:4], kh * kw)
    winner = flat.argmax(-1)  # the first of equal ones
    height, width = winner.shape[2:]

    def backward(dy: np.ndarray) -> tuple[np.ndarray, Weights]:
        dx = np.zeros_like(x)
        for cell in range(kh * kw):
            i, j = divmod(cell, kw)
            window = dx[:, :, i : i + sh * height : sh, j : j + sw * width : sw]
            window += np.where(winner == cell, dy, 0)
        return dx, {}

    return np.take_along_axis(flat, winner[..., None], -1)[..., 0], backward


@forward.register
def _(layer: ReLU, weights: Weights, x: np.ndarray) -> tuple[np.ndarray, Backward]:
    return np.maximum(x, 0), lambda dy: (np.where(x > 0, dy, 0), {})


@forward.register
def _(layer: Flatten, weights: Weights, x: np.ndarray) -> tuple[np.ndarray, Backward]:
    return x.reshape(len(x), -1), lambda dy: (dy.reshape(x.shape), {})


@forward.register
def _(layer: Dense, weights: Weights, x: np.ndarray) -> tuple[np.ndarray, Backward]:
    weight = weights["weight"]
    return x @ weight.T + weights["bias"], lambda dy: (
        dy @ weight,
        {"weight": dy.T @ x, "bias": dy.sum(0)},
    )


@singledispatch
def loss_and_gradient(
    loss: Any, logits: np.ndarray, labels: np.ndarray
) -> tuple[float, np.ndarray]:
    """The loss and its gradient with respect to the logits."""
    raise NotImplementedError(f"the reference does not know the loss {type(loss).__name__}")


@loss_and_gradient.register
def _(
    loss: SoftmaxCrossEntropy, logits: np.ndarray, labels: np.ndarray
) -> tuple[float, np.ndarray]:
    shifted = logits - logits.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    gradient = np.exp(log_softmax)
    gradient[rows, labels] -= 1
    return -float(log_softmax[rows, labels].mean()), gradient / len(labels)


@singledispatch
def step(optimizer: Any, weights: Weights, gradients: Weights, state: Weights) -> None:
    """Change the weights and the optimizer's state (empty at the start) in place."""
    raise NotImplementedError(
        f"the reference does not know the optimizer {type(optimizer).__name__}"
    )


@step.register
def _(optimizer: SGD, weights: Weights, gradients: Weights, state: Weights) -> None:
    for name, gradient in gradients.items():
        state[name] = optimizer.momentum * state.get(name, 0) + gradient
        weights[name] -= (optimizer.learning_rate * state[name]).astype(gradient.dtype)


class ReferenceWorkload:
    def __init__(self, job: Job) -> None:
        self.model, self.dtype = job.model, np.dtype(job.dtype)
        self.layers = list(job.model.named_layers())

    def load_weights(self, weights: Weights) -> None:
        self.state: Weights = {}
        self.parameters = {name: array.astype(self.dtype) for name, array in weights.items()}

    def place(self, batches: Batches) -> None:
        self.batches = batches

    def train_epoch(self) -> np.ndarray:
        losses = []
        for inputs, labels in zip(self.batches.inputs, self.batches.labels, strict=True):
            loss, gradients = self.loss_and_gradients(inputs, labels)
            step(self.model.optimizer, self.parameters, gradients, self.state)
            losses.append(loss)
        return np.array(losses)

    def loss_and_gradients(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, Weights]:
        logits, backwards = self._forward(inputs)
        loss, gradient = loss_and_gradient(self.model.loss, logits, labels)
        gradients: Weights = {}
        for named, backward in zip(reversed(self.layers), reversed(backwards), strict=True):
            gradient, own = backward(gradient)
            gradients |= {f"{named.name}.{key}": value for key, value in own.items()}
        return loss, {name: gradients[name] for name in self.parameters}

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self._forward(inputs)[0]

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self.parameters.items()}

    def peak_memory(self) -> int | None:
        return None

    def threads(self) -> int | None:
        return None

    def epoch_figures(self) -> dict[str, float]:
        return {}

    def allocated(self) -> int | None:
        return None

    def matrix_product(self, size: int) -> Callable[[], None]:
        a, b = np.random.default_rng(0).random((2, size, size), np.float32)
        out = np.empty_like(a)

        def call() -> None:
            np.matmul(a, b, out=out)

        return call

    def copy(self, size: int) -> Callable[[], None]:
        source = np.ones(size, np.uint8)
        return partial(np.copyto, np.empty_like(source), source)

    def details(self) -> dict[str, str]:
        return versions("numpy")

    def _forward(self, x: np.ndarray) -> tuple[np.ndarray, list[Backward]]:
        x, backwards = x.astype(self.dtype), []
        for named in self.layers:
            prefix = f"{named.name}."
            own = {n.removeprefix(prefix): self.parameters[n] for n in named.parameters}
            x, backward = forward(named.layer, own, x)
            backwards.append(backward)
        return x, backwards


class ReferenceAdapter(Adapter):
    title = "NumPy reference"

    def available(self, device: str) -> str | None:
        return None if device == "cpu" else "NumPy runs on the CPU only"

    def installed(self) -> dict[str, str]:
        return versions("numpy")

    def build(self, job: Job) -> ReferenceWorkload:
        return ReferenceWorkload(job)


ADAPTER = ReferenceAdapter()
