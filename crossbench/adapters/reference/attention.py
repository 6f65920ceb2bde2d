"""Attention among the places of a sequence."""

from __future__ import annotations

import math

import numpy as np

from ... import models
from ...models.model import NamedLayer
from .dense import affine
from .passes import Outcome, Pass, forward


def attention_scale(width: int) -> float:
    """Return the factor of the scores of a head with so many features."""
    return 1 / math.sqrt(width)


def causal_mask(length: int) -> np.ndarray:
    """Return where a place (row) must not attend to another (column): where that one is later."""
    return np.triu(np.ones((length, length), bool), 1)


@forward.register
def _(layer: models.MultiHeadAttention, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    parameters = run.parameters(named)
    backs = {}

    def project(name: str, inputs: np.ndarray) -> np.ndarray:
        y, backs[name] = affine(
            run, inputs, parameters[f"{name}_weight"], parameters.get(f"{name}_bias")
        )
        return run.activation(y)

    def project_back(name: str, dy: np.ndarray) -> np.ndarray:
        dx, gradients = backs[name](run.activation(dy))
        run.add_gradients(named, **{f"{name}_{part}": value for part, value in gradients.items()})
        return run.activation(dx)

    def split(values: np.ndarray) -> np.ndarray:  # batch, heads, length, features of a head
        return values.reshape(*values.shape[:2], layer.heads, -1).swapaxes(1, 2)

    def join(values: np.ndarray) -> np.ndarray:
        return values.swapaxes(1, 2).reshape(x.shape)

    q, k, v = (split(project(name, x)) for name in ("query", "key", "value"))
    scale = attention_scale(q.shape[-1])
    q, k, v = run.operands(q, k, v)
    scores = run.activation(q @ k.swapaxes(2, 3) * x.dtype.type(scale))
    if layer.causal:
        scores[..., causal_mask(scores.shape[-1])] = -np.inf
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    shares = exponentials / exponentials.sum(-1, keepdims=True)
    shares = run.activation(shares)
    (weights,) = run.operands(shares)
    joined = run.activation(weights @ v)

    def backward(dy: np.ndarray) -> np.ndarray:
        (djoined,) = run.operands(split(project_back("output", dy)))
        dshares = run.activation(djoined @ v.swapaxes(2, 3))
        # the sum is that of dshares * shares, as FlashAttention computes it (Dao et al., 2022)
        dscores = shares * (dshares - (djoined * joined).sum(-1, keepdims=True))
        (dscores,) = run.operands(dscores * x.dtype.type(scale))
        return (
            project_back("query", join(dscores @ k))
            + project_back("key", join(dscores.swapaxes(2, 3) @ q))
            + project_back("value", join(weights.swapaxes(2, 3) @ djoined))
        )

    return project("output", join(joined)), backward
