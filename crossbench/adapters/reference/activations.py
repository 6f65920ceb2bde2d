"""Compute the activations from their definitions."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ... import models
from ...models.model import NamedLayer
from .passes import Outcome, Pass, along_channels, forward, sum_float64

CORNERED = models.ReLU | models.ReLU6 | models.LeakyReLU | models.ELU | models.HardSwish
SMOOTH = models.SiLU | models.Sigmoid | models.Tanh | models.Softplus


def is_over(x: np.ndarray, run: Pass, corner: float) -> np.ndarray:
    """Return which inputs are over a corner, where the slope has a step; see Pass.near_zero."""
    if not run.near_zero:
        return x > corner
    size = math.sqrt(np.mean(np.square(x))) + abs(corner)
    return x > corner + run.near_zero * size


@forward.register
def _(layer: CORNERED, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    over = partial(is_over, x, run)
    match layer:
        case models.ReLU():
            return np.maximum(x, 0), lambda dy: np.where(over(0), dy, 0)
        case models.ReLU6():
            return np.clip(x, 0, 6), lambda dy: np.where(over(0) & ~over(6), dy, 0)
        case models.LeakyReLU():
            slope = x.dtype.type(layer.slope)
            return np.where(x > 0, x, slope * x), lambda dy: np.where(over(0), dy, slope * dy)
        case models.ELU():
            alpha, negative = x.dtype.type(layer.alpha), np.minimum(x, 0)
            y = np.where(x > 0, x, alpha * np.expm1(negative))
            return y, lambda dy: dy * np.where(over(0), 1, alpha * np.exp(negative))
        case models.HardSwish():
            y, between = x * np.clip(x + 3, 0, 6) / 6, (2 * x + 3) / 6
            return y, lambda dy: dy * np.where(over(-3), np.where(over(3), 1, between), 0)


@forward.register
def _(layer: models.PReLU, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    own = run.parameters(named)["slope"]
    slope = along_channels(x, own)

    def backward(dy: np.ndarray) -> np.ndarray:
        places = (0, *range(2, x.ndim)) if layer.per_channel else tuple(range(x.ndim))
        gradient = sum_float64(dy * np.minimum(x, 0), places)
        run.add_gradients(named, slope=gradient.reshape(own.shape))
        return np.where(is_over(x, run, 0), dy, slope * dy)

    return np.where(x > 0, x, slope * x), backward


@forward.register
def _(layer: models.Rescaling, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    scale, offset = x.dtype.type(layer.scale), x.dtype.type(layer.offset)
    return scale * x + offset, lambda dy: scale * dy


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
def _(layer: SMOOTH, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    match layer:
        case models.SiLU():
            share = sigmoid(x)
            return x * share, lambda dy: dy * share * (1 + x * (1 - share))
        case models.Sigmoid():
            y = sigmoid(x)
            return y, lambda dy: dy * y * (1 - y)
        case models.Tanh():
            y = np.tanh(x)
            return y, lambda dy: dy * (1 - y**2)
        case models.Softplus():
            return np.logaddexp(x, x.dtype.type(0)), lambda dy: dy * sigmoid(x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)
