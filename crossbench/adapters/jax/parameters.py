"""Say where Flax holds each parameter of a layer, and with which axes. Imports no Flax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ... import models
from ...models.model import NamedLayer
from ...models.parameters import Shape


@dataclass(frozen=True)
class Place:
    """Says where Flax holds a canonical parameter, and how.

    path: the attributes that lead to it, "cell.dense_i.kernel". shape: the canonical one. axes: the
    canonical axes in Flax's order. flax_shape: Flax's, where it has split an axis.
    """

    path: str
    shape: Shape
    axes: tuple[int, ...]
    flax_shape: Shape

    def to_flax(self, array: np.ndarray) -> np.ndarray:
        """Return the canonical array as Flax has it."""
        return array.transpose(self.axes).reshape(self.flax_shape)

    def from_flax(self, array: np.ndarray) -> np.ndarray:
        """Return the canonical form of Flax's array, or of its gradient."""
        return array.reshape(self._transposed).transpose(np.argsort(self.axes))

    @property
    def methods(self) -> str:
        """Return the source code of the methods by which `to_flax` turns an array."""
        moves = self.axes != tuple(range(len(self.axes)))
        transposed = (".T" if len(self.axes) == 2 else f".transpose{self.axes}") if moves else ""
        is_split = self.flax_shape != self._transposed
        return transposed + (f".reshape{self.flax_shape}" if is_split else "")

    @property
    def _transposed(self) -> Shape:
        return tuple(self.shape[axis] for axis in self.axes)


def places(named: NamedLayer) -> dict[str, Place]:
    """Return where a layer's module holds each of its parameters, by canonical name."""
    own = named.layer.parameters(named.input_shape)
    return {name: _place(named, name, parameter.shape) for name, parameter in own.items()}


DENSE = {"weight": "kernel", "bias": "bias"}
NORM = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}
LSTM = {"weight_ih": "dense_i.kernel", "weight_hh": "dense_h.kernel", "bias": "dense_h.bias"}
GRU = LSTM | {"bias": "dense_i.bias"}
KERNEL_AXES = {2: (1, 0), 4: (2, 3, 1, 0)}
"""Flax's axes of a kernel by their number: dense ones are (in, out), convolutions' (H, W, I, O)."""


def _place(named: NamedLayer, name: str, shape: Shape) -> Place:
    path = _path(named, name)
    is_kernel = path.endswith("kernel")
    axes = KERNEL_AXES[len(shape)] if is_kernel else tuple(range(len(shape)))
    flax_shape = tuple(shape[axis] for axis in axes)
    if isinstance(named.layer, models.MultiHeadAttention):
        heads, features = named.layer.heads, named.input_shape[-1]
        flax_shape = _split(path, (heads, features // heads), features)
    return Place(path, shape, axes, flax_shape)


def _split(path: str, by_head: Shape, features: int) -> Shape:
    """Return the shape of an attention's kernel or bias, whose features are split by the head."""
    match path.split("."):
        case "out", "kernel":
            return (*by_head, features)
        case "out", _:
            return (features,)
        case _, "kernel":
            return (features, *by_head)
    return by_head


def _path(named: NamedLayer, name: str) -> str:
    """Return the attributes of a module that lead to a parameter."""
    match named.layer:
        case models.BatchNorm() | models.LayerNorm() | models.RMSNorm():
            return NORM[name]
        case models.Embedding() | models.PositionEmbedding() | models.ClassToken():
            return "embedding"
        case models.MultiHeadAttention():
            projection, kind = name.split("_")
            return f"{projection.replace('output', 'out')}.{DENSE[kind]}"
        case models.LSTM(bidirectional=both) | models.GRU(bidirectional=both):
            cell: Mapping[str, str] = LSTM if isinstance(named.layer, models.LSTM) else GRU
            base = name.removesuffix("_reverse")
            holder = ("forward." if base == name else "backward.") if both else ""
            return f"{holder}cell.{cell[base]}"
    return DENSE[name]
