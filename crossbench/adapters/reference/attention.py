"""Compute attention among the places of a sequence."""

from __future__ import annotations

import math

import numpy as np

from ... import models
from ...models.model import NamedLayer
from .dense import affine
from .passes import Backward, Outcome, Pass, forward
from .sequences import place_angles


def attention_scale(width: int) -> float:
    """Return the factor of the scores of a head with so many features."""
    return 1 / math.sqrt(width)


def causal_mask(length: int) -> np.ndarray:
    """Return where a place (row) must not attend to another (column): where that one is later."""
    return np.triu(np.ones((length, length), bool), 1)


def window_mask(length: int, window: int) -> np.ndarray:
    """Return where a place must not attend to another: where that one is too far away."""
    return abs(np.subtract.outer(np.arange(length), np.arange(length))) >= window


def shared_heads(heads: int, key_heads: int) -> np.ndarray:
    """Return the head of keys and values of each head of queries."""
    return np.arange(heads) // (heads // key_heads)


def rotate(x: np.ndarray, rotary: models.Rotary | None, sign: int = 1) -> np.ndarray:
    """Return (batch, heads, length, D) rotated by the angles of the places, or, by -1, back."""
    if rotary is None:
        return x
    length, width = x.shape[2:]
    angles = sign * place_angles(length, width, rotary.base)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    axis, pairs = (-1, (-1, 2)) if rotary.interleaved else (-2, (2, -1))
    a, b = np.moveaxis(x.reshape(*x.shape[:3], *pairs), axis, 0)
    return np.stack([a * cos - b * sin, b * cos + a * sin], axis).reshape(x.shape)


@forward.register
def _(layer: models.MultiHeadAttention, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    parameters = run.parameters(named)
    backs = {}
    norm_backs: dict[str, Backward] = {}

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
        return values.reshape(*values.shape[:2], -1, layer.width(x.shape)).swapaxes(1, 2)

    def join(values: np.ndarray) -> np.ndarray:
        return values.swapaxes(1, 2).reshape(*x.shape[:2], -1)

    def normalize(name: str, heads: np.ndarray) -> Outcome:
        if layer.norm is None:
            return heads, lambda dy: dy
        shape = heads.shape[2:]
        norm = NamedLayer(f"{named.name}.{name}_norm", layer.norm, shape, shape)
        places = heads.reshape(len(heads), -1, shape[-1])
        y, back = forward(layer.norm, norm, places, run)
        return y.reshape(heads.shape), lambda dy: back(dy.reshape(y.shape)).reshape(heads.shape)

    def turn(name: str) -> np.ndarray:
        """Return the queries or the keys, normalized and rotated."""
        heads, norm_backs[name] = normalize(name, split(project(name, x)))
        return run.activation(rotate(run.activation(heads), layer.rotary))

    def turn_back(name: str, dy: np.ndarray) -> np.ndarray:
        dy = run.activation(rotate(dy, layer.rotary, -1))
        return project_back(name, join(norm_backs[name](dy)))

    def share_back(dy: np.ndarray) -> np.ndarray:
        """Return the sum of the gradients of queries' heads for each head of keys or values."""
        return np.stack([dy[:, sharing == head].sum(1) for head in range(layer.key_heads)], 1)

    q, k, v = turn("query"), turn("key"), split(project("value", x))
    sharing = shared_heads(layer.heads, layer.key_heads)
    k, v = k[:, sharing], v[:, sharing]
    scale = attention_scale(q.shape[-1])
    q, k, v = run.operands(q, k, v)
    scores = run.activation(q @ k.swapaxes(2, 3) * x.dtype.type(scale))
    if layer.causal:
        scores[..., causal_mask(scores.shape[-1])] = -np.inf
    if layer.window:
        scores[..., window_mask(scores.shape[-1], layer.window)] = -np.inf
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    shares = run.activation(exponentials / exponentials.sum(-1, keepdims=True))
    (weights,) = run.operands(shares)
    joined = run.activation(weights @ v)

    def backward(dy: np.ndarray) -> np.ndarray:
        (djoined,) = run.operands(split(project_back("output", dy)))
        dshares = run.activation(djoined @ v.swapaxes(2, 3))
        # the sum is that of dshares * shares, as FlashAttention computes it (Dao et al., 2022)
        dscores = shares * (dshares - (djoined * joined).sum(-1, keepdims=True))
        (dscores,) = run.operands(dscores * x.dtype.type(scale))
        return (
            turn_back("query", dscores @ k)
            + turn_back("key", share_back(dscores.swapaxes(2, 3) @ q))
            + project_back("value", join(share_back(weights.swapaxes(2, 3) @ djoined)))
        )

    return project("output", join(joined)), backward
