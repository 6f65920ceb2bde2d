"""The activations, from their definitions."""

from __future__ import annotations

import math

import numpy as np

from ... import models
from ...models.model import NamedLayer
from .passes import Outcome, Pass, forward, sum_float64


def is_over(x: np.ndarray, corner: float, run: Pass) -> np.ndarray:
    """Return which inputs are over a corner, where the slope has a step; see Pass.near_zero."""
    if not run.near_zero:
        return x > corner
    size = math.sqrt(np.mean(np.square(x))) + abs(corner)
    return x > corner + run.near_zero * size


@forward.register
def _(layer: models.ReLU, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    return np.maximum(x, 0), lambda dy: np.where(is_over(x, 0, run), dy, 0)


@forward.register
def _(layer: models.ReLU6, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    def backward(dy: np.ndarray) -> np.ndarray:
        return np.where(is_over(x, 0, run) & ~is_over(x, 6, run), dy, 0)

    return np.clip(x, 0, 6), backward


@forward.register
def _(layer: models.LeakyReLU, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    slope = x.dtype.type(layer.slope)
    return np.where(x > 0, x, slope * x), lambda dy: np.where(is_over(x, 0, run), dy, slope * dy)


@forward.register
def _(layer: models.PReLU, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    own = run.parameters(named)["slope"]
    slope = own.reshape(-1, *[1] * (x.ndim - 2))  # the channels are axis 1

    def backward(dy: np.ndarray) -> np.ndarray:
        places = (0, *range(2, x.ndim)) if layer.per_channel else tuple(range(x.ndim))
        gradient = sum_float64(dy * np.minimum(x, 0), places)
        run.add_gradients(named, slope=gradient.reshape(own.shape))
        return np.where(is_over(x, 0, run), dy, slope * dy)

    return np.where(x > 0, x, slope * x), backward


@forward.register
def _(layer: models.ELU, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    alpha, negative = x.dtype.type(layer.alpha), np.minimum(x, 0)

    def backward(dy: np.ndarray) -> np.ndarray:
        return dy * np.where(is_over(x, 0, run), 1, alpha * np.exp(negative))

    return np.where(x > 0, x, alpha * np.expm1(negative)), backward


@forward.register
def _(layer: models.GELU, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    if layer.tanh:
        scale = math.sqrt(2 / math.pi)
        tanh = np.tanh(scale * (x + 0.044715 * x**3))
        below = (1 + tanh) / 2
    else:
        from scipy.special import erf  # it takes a third of a worker process' start

        below = (1 + erf(x / math.sqrt(2))) / 2  # the share of the normal distribution below x

    def backward(dy: np.ndarray) -> np.ndarray:
        if layer.tanh:
            slope = (1 - tanh**2) / 2 * scale * (1 + 3 * 0.044715 * x**2)
        else:
            slope = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        return dy * (below + x * slope)

    return x * below, backward


@forward.register
def _(layer: models.SiLU, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    share = sigmoid(x)
    return x * share, lambda dy: dy * share * (1 + x * (1 - share))


@forward.register
def _(layer: models.HardSwish, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    def backward(dy: np.ndarray) -> np.ndarray:
        slope = np.where(is_over(x, 3, run), 1, (2 * x + 3) / 6)
        return dy * np.where(is_over(x, -3, run), slope, 0)

    return x * np.clip(x + 3, 0, 6) / 6, backward


@forward.register
def _(layer: models.Sigmoid, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    y = sigmoid(x)
    return y, lambda dy: dy * y * (1 - y)


@forward.register
def _(layer: models.Tanh, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    y = np.tanh(x)
    return y, lambda dy: dy * (1 - y**2)


@forward.register
def _(layer: models.Softplus, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    return np.logaddexp(x, x.dtype.type(0)), lambda dy: dy * sigmoid(x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)
