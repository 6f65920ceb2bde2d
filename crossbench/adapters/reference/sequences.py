"""Compute the layers of token ids and of places: embeddings, and the first place alone."""

from __future__ import annotations

import numpy as np

from ... import models
from ...models.model import NamedLayer
from .dense import affine
from .passes import Outcome, Pass, forward, sum_float64

TIED_WEIGHT = "embedding1.weight"
"""The parameter that an Unembedding shares."""


@forward.register
def _(layer: models.Embedding, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    weight = run.parameters(named)["weight"]

    def backward(dy: np.ndarray) -> np.ndarray:
        gradient = np.zeros_like(weight)
        np.add.at(gradient, x, dy)
        run.add_gradients(named, weight=gradient)
        return np.zeros(x.shape)  # integers have no gradient

    return weight[x], backward


@forward.register
def _(layer: models.OneHot, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    dtype = next(iter(run.weights.values())).dtype
    return np.eye(layer.vocabulary, dtype=dtype)[x], lambda dy: np.zeros(x.shape)


@forward.register
def _(layer: models.Unembedding, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    y, back = affine(run, x, run.weights[TIED_WEIGHT], None)

    def backward(dy: np.ndarray) -> np.ndarray:
        dx, gradients = back(dy)
        run.add_to(TIED_WEIGHT, gradients["weight"])
        return dx

    return y, backward


@forward.register
def _(layer: models.PositionEmbedding, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    def backward(dy: np.ndarray) -> np.ndarray:
        run.add_gradients(named, weight=sum_float64(dy, (0,)))
        return dy

    return x + run.parameters(named)["weight"], backward


@forward.register
def _(layer: models.SinusoidalPositions, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    return x + sinusoids(*x.shape[1:]).astype(x.dtype), lambda dy: dy


def sinusoids(length: int, features: int) -> np.ndarray:
    """Return the sines and cosines of each place, in turn."""
    angles = place_angles(length, features, 10_000)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, features)


def place_angles(length: int, features: int, base: float) -> np.ndarray:
    """Return the angle of each place and pair of features, (length, features / 2)."""
    return np.outer(np.arange(length), base ** (-np.arange(0, features, 2) / features))


@forward.register
def _(layer: models.ClassToken, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    weight = run.parameters(named)["weight"]
    token = np.broadcast_to(weight, (len(x), 1, len(weight)))

    def backward(dy: np.ndarray) -> np.ndarray:
        run.add_gradients(named, weight=sum_float64(dy[:, 0], (0,)))
        return dy[:, 1:]

    return np.concatenate([token, x], 1), backward


@forward.register
def _(layer: models.FirstOfSequence, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    def backward(dy: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        dx[:, 0] = dy
        return dx

    return x[:, 0], backward
