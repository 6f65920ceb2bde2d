"""Compute dense layers and dropouts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ... import models
from ...models.model import NamedLayer, Weights
from .passes import Outcome, Pass, forward, sum_in_order


@forward.register
def _(layer: models.Dense, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    parameters = run.parameters(named)
    y, back = affine(run, x, parameters["weight"], parameters.get("bias"))

    def backward(dy: np.ndarray) -> np.ndarray:
        dx, gradients = back(dy)
        run.add_gradients(named, **gradients)
        return dx

    return y, backward


def affine(
    run: Pass, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None
) -> tuple[np.ndarray, Callable[[np.ndarray], tuple[np.ndarray, Weights]]]:
    """Return x @ weight' + bias over the last axis, and its backward pass: the gradient of x, and
    those of the "weight" and, unless it is None, of the "bias".
    """
    # a product of many small matrices is slow in NumPy
    rows, matrix = run.operands(x.reshape(-1, x.shape[-1]), weight)

    def backward(dy: np.ndarray) -> tuple[np.ndarray, Weights]:
        (drows,) = run.operands(dy.reshape(-1, dy.shape[-1]))
        gradients = {"weight": drows.T @ rows}
        if bias is not None:
            gradients["bias"] = sum_in_order(dy.reshape(-1, dy.shape[-1]), (0,))
        return (drows @ matrix).reshape(x.shape), gradients

    y = (rows @ matrix.T).reshape(*x.shape[:-1], -1)
    return y if bias is None else y + bias, backward


@forward.register
def _(layer: models.Dropout, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    if not run.training:
        return x, lambda dy: dy
    mask = run.masks and run.masks[named.name]
    mask = run.random.random(x.shape) >= layer.rate if mask is None else mask
    scale = mask / x.dtype.type(1 - layer.rate)
    return x * scale, lambda dy: dy * scale
