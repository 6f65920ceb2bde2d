"""Compute branches, and join them."""

from __future__ import annotations

import math

import numpy as np

from ... import models
from ...models.layers.branches import CONCATENATE, MULTIPLY
from ...models.model import NamedLayer
from .passes import Outcome, Pass, channel_axis, forward, forward_all


@forward.register
def _(layer: models.Branches, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    outputs, backs = zip(*(forward_all(b, x, run) for b in named.branches), strict=True)

    def backward(dy: np.ndarray) -> np.ndarray:
        pairs = zip(backs, _gradients(layer.join, outputs, dy), strict=True)
        return sum(back(gradient) for back, gradient in pairs)

    if layer.join == CONCATENATE:
        return np.concatenate(outputs, channel_axis(outputs[0])), backward
    return _product(outputs) if layer.join == MULTIPLY else sum(outputs), backward


def _gradients(join: str, outputs: tuple[np.ndarray, ...], dy: np.ndarray) -> list[np.ndarray]:
    """Return the gradient of each branch's output."""
    if join == CONCATENATE:
        axis = channel_axis(dy)
        return np.split(dy, np.cumsum([y.shape[axis] for y in outputs])[:-1], axis)
    gradients = [dy] * len(outputs)
    if join == MULTIPLY:
        gradients = [dy * _product(outputs[:n] + outputs[n + 1 :]) for n in range(len(outputs))]
    return [_summed(g, y.shape) for g, y in zip(gradients, outputs, strict=True)]


def _product(arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    return math.prod(arrays[1:], start=arrays[0])


def _summed(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the gradient of an array of this shape, whose axes of 1 were broadcast."""
    axes = tuple(n for n, size in enumerate(shape) if size == 1 and gradient.shape[n] > 1)
    return gradient.sum(axes, keepdims=True) if axes else gradient
