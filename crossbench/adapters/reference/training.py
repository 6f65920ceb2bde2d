"""Compute the losses with their gradients, and the steps of the optimizers."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import numpy as np

from ... import models
from ...models.model import Weights
from .activations import sigmoid
from .passes import channel_axis

LossAndGradient = tuple[float, np.ndarray]


@singledispatch
def loss_and_gradient(loss: Any, logits: np.ndarray, labels: np.ndarray) -> LossAndGradient:
    """Return the loss and its gradient with respect to the logits, or to the outputs."""
    raise NotImplementedError(
        f"the NumPy reference does not support the loss {type(loss).__name__}"
    )


@loss_and_gradient.register
def _(loss: models.SoftmaxCrossEntropy, logits: np.ndarray, labels: np.ndarray) -> LossAndGradient:
    axis, smoothing = channel_axis(logits), loss.label_smoothing
    scores = np.moveaxis(logits, axis, -1)
    classes = scores.shape[-1]
    flat, labels = scores.reshape(-1, classes), labels.reshape(-1)
    shifted = flat - flat.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    value = (1 - smoothing) * log_softmax[rows, labels].mean() + smoothing * log_softmax.mean()
    gradient = np.exp(log_softmax) - logits.dtype.type(smoothing / classes)
    gradient[rows, labels] -= logits.dtype.type(1 - smoothing)
    gradient = gradient.reshape(scores.shape) / len(labels)
    return -float(value), np.moveaxis(gradient, -1, axis)


@loss_and_gradient.register
def _(loss: models.BinaryCrossEntropy, logits: np.ndarray, labels: np.ndarray) -> LossAndGradient:
    z, y = logits[:, 0], labels.astype(logits.dtype)
    losses = np.maximum(z, 0) - z * y + np.log1p(np.exp(-np.abs(z)))
    return float(losses.mean()), ((sigmoid(z) - y) / len(y))[:, None]


@loss_and_gradient.register
def _(loss: models.MeanSquaredError, outputs: np.ndarray, targets: np.ndarray) -> LossAndGradient:
    difference = outputs - targets
    return float((difference**2).mean()), 2 * difference / difference.size


@loss_and_gradient.register
def _(loss: models.AbsoluteError, outputs: np.ndarray, targets: np.ndarray) -> LossAndGradient:
    difference = outputs - targets
    return float(np.abs(difference).mean()), np.sign(difference) / difference.size


@loss_and_gradient.register
def _(loss: models.Huber, outputs: np.ndarray, targets: np.ndarray) -> LossAndGradient:
    difference, delta = outputs - targets, outputs.dtype.type(loss.delta)
    near = np.clip(difference, -delta, delta)
    losses = near * (difference - near / 2)
    return float(losses.mean()), near / difference.size


@loss_and_gradient.register
def _(loss: models.GivenGradient, outputs: np.ndarray, labels: np.ndarray) -> LossAndGradient:
    return 0.0, labels


State = dict[str, dict[str, Any]]
"""An optimizer's state: by parameter, then by the name in the optimizer's formula ("velocity")."""


@singledispatch
def update(optimizer: Any, gradient: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    """Return what step t (from 0) subtracts from a weight, for a learning rate of 1.

    It follows the formula in the optimizer's docstring. state: the weight's, empty at the start;
    changed in place.
    """
    raise NotImplementedError(
        f"the NumPy reference does not support the optimizer {type(optimizer).__name__}"
    )


@update.register
def _(optimizer: models.SGD, gradient: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    state["velocity"] = optimizer.momentum * state.get("velocity", 0) + gradient
    velocity: np.ndarray = state["velocity"]
    return gradient + optimizer.momentum * velocity if optimizer.nesterov else velocity


@update.register
def _(
    optimizer: models.Adam | models.AdamW, gradient: np.ndarray, state: dict[str, Any], t: int
) -> np.ndarray:
    b1, b2 = optimizer.beta1, optimizer.beta2
    state["m"] = b1 * state.get("m", 0) + (1 - b1) * gradient
    state["v"] = b2 * state.get("v", 0) + (1 - b2) * gradient**2
    m, v = state["m"] / (1 - b1 ** (t + 1)), state["v"] / (1 - b2 ** (t + 1))
    return m / (np.sqrt(v) + optimizer.epsilon)


@update.register
def _(optimizer: models.RMSprop, gradient: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    state["v"] = optimizer.rho * state.get("v", 0) + (1 - optimizer.rho) * gradient**2
    return gradient / (np.sqrt(state["v"]) + optimizer.epsilon)


@update.register
def _(
    optimizer: models.Adadelta, gradient: np.ndarray, state: dict[str, Any], t: int
) -> np.ndarray:
    rho, epsilon, u = optimizer.rho, optimizer.epsilon, state.get("u", 0)
    state["v"] = rho * state.get("v", 0) + (1 - rho) * gradient**2
    step = gradient * np.sqrt(u + epsilon) / np.sqrt(state["v"] + epsilon)
    state["u"] = rho * u + (1 - rho) * step**2
    return step


@update.register
def _(optimizer: models.Lion, gradient: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    m, b1, b2 = state.get("m", 0), optimizer.beta1, optimizer.beta2
    state["m"] = b2 * m + (1 - b2) * gradient
    return np.sign(b1 * m + (1 - b1) * gradient)


@update.register
def _(optimizer: models.Adagrad, gradient: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    state["s"] = state.get("s", optimizer.initial_accumulator) + gradient**2
    return gradient / (np.sqrt(state["s"]) + optimizer.epsilon)


def clip(gradients: Weights, clip_norm: float | None) -> Weights:
    """Return the gradients, each scaled down where the norm of them all is over clip_norm."""
    norm = global_norm(gradients)
    if clip_norm is None or norm <= clip_norm:
        return gradients
    return {name: g * g.dtype.type(clip_norm / norm) for name, g in gradients.items()}


def global_norm(gradients: Weights) -> float:
    """Return the Euclidean norm of all gradients together."""
    return math.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values()))
