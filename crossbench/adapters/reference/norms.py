"""The normalizations: by the batch, by the features."""

from __future__ import annotations

import numpy as np

from ... import models
from ...models.model import NamedLayer
from .passes import Outcome, Pass, forward, sum_float64


@forward.register
def _(layer: models.BatchNorm, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    parameters = run.parameters(named)
    n = x.size // x.shape[1]

    def channels(values: np.ndarray) -> np.ndarray:
        return values.reshape(-1, *[1] * (x.ndim - 2))

    if run.training:
        mean = _channel_sum(x) / x.dtype.type(n)
        variance = _channel_sum((x - channels(mean)) ** 2) / x.dtype.type(n)
        momentum = layer.momentum
        for name, new in (("running_mean", mean), ("running_var", variance * (n / (n - 1)))):
            run.running[f"{named.name}.{name}"] = momentum * parameters[name] + (
                1 - momentum
            ) * new.astype(x.dtype)
    else:
        mean, variance = parameters["running_mean"], parameters["running_var"]
    deviation = np.sqrt(variance + layer.epsilon)
    normal = (x - channels(mean)) / channels(deviation)

    def backward(dy: np.ndarray) -> np.ndarray:
        dweight, dbias = _channel_sum(dy * normal), _channel_sum(dy)
        run.add_gradients(named, weight=dweight, bias=dbias)
        centred = dy - channels(dbias / n) - normal * channels(dweight / n)
        return centred * channels(parameters["weight"] / deviation)

    return normal * channels(parameters["weight"]) + channels(parameters["bias"]), backward


def _channel_sum(x: np.ndarray) -> np.ndarray:
    """Sum each channel (axis 1); in float32 as Julia does: one value after another, all rounded."""
    values = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
    return np.cumsum(values, 1)[:, -1] if x.dtype == np.float32 else values.sum(1)


@forward.register(models.LayerNorm)
@forward.register(models.RMSNorm)
def _(
    layer: models.LayerNorm | models.RMSNorm, named: NamedLayer, x: np.ndarray, run: Pass
) -> Outcome:
    centres = isinstance(layer, models.LayerNorm)
    parameters = run.parameters(named)
    weight, bias = parameters["weight"], parameters.get("bias")

    def centred(values: np.ndarray) -> np.ndarray:
        return values - values.mean(-1, keepdims=True) if centres else values

    difference = centred(x)
    deviation = np.sqrt((difference**2).mean(-1, keepdims=True) + x.dtype.type(layer.epsilon))
    normal = difference / deviation

    def backward(dy: np.ndarray) -> np.ndarray:
        places = tuple(range(dy.ndim - 1))
        gradients = {"weight": sum_float64(dy * normal, places)}
        if bias is not None:
            gradients["bias"] = sum_float64(dy, places)
        run.add_gradients(named, **gradients)
        dnormal = dy * weight
        along = (dnormal * normal).mean(-1, keepdims=True)
        return (centred(dnormal) - normal * along) / deviation

    y = normal * weight
    return y if bias is None else y + bias, backward
