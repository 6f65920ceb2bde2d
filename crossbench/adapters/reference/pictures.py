"""Compute pools, of sequences too, and paddings, upsampling and other shapes of pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import models
from ...models.model import NamedLayer
from .passes import Outcome, Pass, channels_first, forward
from .windows import patches, summed


def largest(values: np.ndarray, run: Pass) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest values along the last axis, and their places; count near ties."""
    maximum = values.max(-1, keepdims=True)
    near = values >= maximum - np.sqrt(np.finfo(values.dtype).eps) * np.abs(maximum)
    # exact ties, such as the zeros that a ReLU leaves, are harmless: all get the same gradient
    run.near_ties += int(((values != maximum) & near).any(-1).sum())
    winner = near.argmax(-1) if values.dtype == np.float32 else values.argmax(-1)
    return maximum[..., 0], winner


@forward.register(models.MaxPool)
@forward.register(models.MaxPool1D)
@forward.register(models.AveragePool)
@forward.register(models.AveragePool1D)
def _(layer: models.Pool, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    values = channels_first(x)
    pooled = largest_of_each if layer.is_max else mean_of_each
    fill = -np.inf if layer.is_max else 0.0
    y, gradient = pooled(patches(values, layer.windows, fill), layer, run)

    def backward(dy: np.ndarray) -> np.ndarray:
        part = gradient(channels_first(dy))
        return channels_first(summed(part, layer.windows, values.shape, x.dtype))

    return channels_first(y), backward


Part = Callable[[tuple[int, ...]], np.ndarray]
"""Returns what a cell of each window, by its place in the window, adds to the gradient."""


def largest_of_each(
    windows: np.ndarray, layer: models.Pool, run: Pass
) -> tuple[np.ndarray, Callable[[np.ndarray], Part]]:
    """Return the maximum of each window, and what makes a part of the gradient of it."""
    y, winner = largest(windows.reshape(*windows.shape[: -len(layer.sizes)], -1), run)
    return (
        y,
        lambda dy: lambda cell: np.where(winner == np.ravel_multi_index(cell, layer.sizes), dy, 0),
    )


def mean_of_each(
    windows: np.ndarray, layer: models.Pool, run: Pass
) -> tuple[np.ndarray, Callable[[np.ndarray], Part]]:
    """Return the mean of each window, and what makes a part of the gradient of it."""
    axes = tuple(range(-len(layer.sizes), 0))
    count = np.prod(layer.sizes).astype(windows.dtype)
    return windows.mean(axes), lambda dy: lambda cell: dy / count


@forward.register
def _(layer: models.GlobalAveragePool, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    axes = (1,) if x.ndim == 3 else (2, 3)
    count = np.prod([x.shape[axis] for axis in axes]).astype(x.dtype)
    return x.mean(axes), lambda dy: np.broadcast_to(np.expand_dims(dy / count, axes), x.shape)


@forward.register
def _(layer: models.GlobalMaxPool, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    places = channels_first(x).reshape(len(x), -1, x.size // len(x) // named.output_shape[0])
    y, winner = largest(places, run)

    def backward(dy: np.ndarray) -> np.ndarray:
        dplaces = np.zeros(places.shape, x.dtype)
        np.put_along_axis(dplaces, winner[..., None], dy[..., None], -1)
        return channels_first(dplaces) if x.ndim == 3 else dplaces.reshape(x.shape)

    return y, backward


@forward.register
def _(layer: models.Pad | models.Upsample, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    """Multiply by what makes of the values of a column, and of a row, the new ones."""
    if isinstance(layer, models.Pad):
        mode: Any = {"zeros": "constant", "reflect": "reflect"}[layer.mode]
        columns, rows = (
            np.pad(np.eye(length), ((window.before, window.after), (0, 0)), mode)
            for length, window in zip(x.shape[2:], layer.windows, strict=True)
        )
    else:
        columns, rows = (upsampling(length, layer.factor, layer.mode) for length in x.shape[2:])
    columns, rows = columns.astype(x.dtype), rows.astype(x.dtype)
    return columns @ x @ rows.T, lambda dy: columns.T @ dy @ rows


def upsampling(length: int, factor: int, mode: str) -> np.ndarray:
    """Return the share of each value of an axis (columns) in each upsampled one (rows)."""
    if mode == "nearest":
        return np.eye(length).repeat(factor, 0)
    places = np.clip((np.arange(factor * length) + 0.5) / factor - 0.5, 0, length - 1)
    return np.maximum(1 - np.abs(places[:, None] - np.arange(length)), 0)


@forward.register
def _(layer: models.Transpose, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    return x.swapaxes(1, 2), lambda dy: dy.swapaxes(1, 2)


@forward.register
def _(layer: models.ToSequence, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    y = x.reshape(*x.shape[:2], -1).transpose(0, 2, 1)
    return y, lambda dy: dy.transpose(0, 2, 1).reshape(x.shape)


@forward.register(models.Flatten)
@forward.register(models.Reshape)
def _(layer: models.Layer, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    return x.reshape(len(x), *named.output_shape), lambda dy: dy.reshape(x.shape)
