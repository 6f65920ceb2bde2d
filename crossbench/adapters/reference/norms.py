"""Compute norms, by the batch, the channels or groups of them, and the scale of each channel."""

from __future__ import annotations

from functools import partial

import numpy as np

from ... import models
from ...models.model import NamedLayer
from .passes import (
    Outcome,
    Pass,
    along_channels,
    channel_axis,
    channels_first,
    forward,
    sum_float64,
)


@forward.register
def _(layer: models.BatchNorm, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    parameters, x = run.parameters(named), channels_first(x)
    n, channels = x.size // x.shape[1], partial(along_channels, x)
    if run.training:
        mean = _channel_sum(x) / x.dtype.type(n)
        variance = _channel_sum((x - channels(mean)) ** 2) / x.dtype.type(n)
        for name, new in (("running_mean", mean), ("running_var", variance * (n / (n - 1)))):
            new = (1 - layer.momentum) * new.astype(x.dtype)
            run.running[f"{named.name}.{name}"] = layer.momentum * parameters[name] + new
    else:
        mean, variance = parameters["running_mean"], parameters["running_var"]
    deviation = np.sqrt(variance + layer.epsilon)
    normal = (x - channels(mean)) / channels(deviation)

    weight = parameters.get("weight", np.ones_like(mean))
    bias = parameters.get("bias", np.zeros_like(mean))

    def backward(dy: np.ndarray) -> np.ndarray:
        dy = channels_first(dy)
        dweight, dbias = _channel_sum(dy * normal), _channel_sum(dy)
        if layer.affine:
            run.add_gradients(named, weight=dweight, bias=dbias)
        centred = dy - channels(dbias / n) - normal * channels(dweight / n)
        return channels_first(centred * channels(weight / deviation))

    return channels_first(normal * channels(weight) + channels(bias)), backward


def _channel_sum(x: np.ndarray) -> np.ndarray:
    """Sum each channel (axis 1); in float32 as Julia does: one value after another, all rounded."""
    values = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
    return np.cumsum(values, 1)[:, -1] if x.dtype == np.float32 else values.sum(1)


@forward.register
def _(
    layer: models.LayerNorm | models.RMSNorm, named: NamedLayer, x: np.ndarray, run: Pass
) -> Outcome:
    centres = isinstance(layer, models.LayerNorm)
    normal, normal_back = normalized(x, channel_axis(x), layer.epsilon, centres)
    y, back = scaled(named, normal, run)
    return y, lambda dy: normal_back(back(dy))


@forward.register
def _(layer: models.GroupNorm, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    groups = x.reshape(len(x), layer.groups, -1)
    normal, normal_back = normalized(groups, 2, layer.epsilon)
    y, back = scaled(named, normal.reshape(x.shape), run)
    return y, lambda dy: normal_back(back(dy).reshape(groups.shape)).reshape(x.shape)


@forward.register
def _(layer: models.Scale, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    return scaled(named, x, run)


def normalized(x: np.ndarray, axis: int, epsilon: float, centres: bool = True) -> Outcome:
    """Return (x - mean) / sqrt(variance + epsilon) along an axis, and its backward pass.

    centres: False for a mean of 0, whatever it is.
    """

    def centred(values: np.ndarray) -> np.ndarray:
        return values - values.mean(axis, keepdims=True) if centres else values

    difference = centred(x)
    deviation = np.sqrt((difference**2).mean(axis, keepdims=True) + x.dtype.type(epsilon))
    normal = difference / deviation

    def backward(dnormal: np.ndarray) -> np.ndarray:
        along = (dnormal * normal).mean(axis, keepdims=True)
        return (centred(dnormal) - normal * along) / deviation

    return normal, backward


def scaled(named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    """Return weight * x + bias, with those of them that the layer has, and its backward pass."""
    after = x.ndim - 1 - channel_axis(x)
    arrays = {
        name: array.reshape(-1, *[1] * after) for name, array in run.parameters(named).items()
    }
    weight, bias = arrays.get("weight"), arrays.get("bias")

    def backward(dy: np.ndarray) -> np.ndarray:
        gradients = {name: _sum(dy * x if name == "weight" else dy) for name in arrays}
        run.add_gradients(named, **gradients)
        return dy if weight is None else dy * weight

    y = x if weight is None else x * weight
    return y if bias is None else y + bias, backward


def _sum(x: np.ndarray) -> np.ndarray:
    """Sum each channel: of pictures as a batch norm does."""
    return _channel_sum(x) if x.ndim == 4 else sum_float64(x, tuple(range(x.ndim - 1)))
