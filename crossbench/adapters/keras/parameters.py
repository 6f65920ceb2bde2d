"""Say which attributes of a Keras layer hold its parameters. Imports no Keras."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ... import models
from ...models.layers.layer import channels
from ...models.model import NamedLayer, Weights
from ...source import places as of_layers
from ...source.places import Place
from .source import is_depthwise


@dataclass(frozen=True)
class GRUPlace(Place):
    """Says where Keras holds a parameter of a GRU, whose gates have another order.

    row: of a bias, whose second row is that of cuDNN's formula.
    """

    row: int

    def to_framework(self, array: np.ndarray) -> np.ndarray:
        array = super().to_framework(swapped(array))
        if array.ndim > 1:
            return array
        rows = np.zeros((2, *array.shape), array.dtype)
        rows[self.row] = array
        return rows

    def from_framework(self, array: np.ndarray) -> np.ndarray:
        own = array[self.row] if len(self.shape) == 1 else array
        return swapped(super().from_framework(own))


def swapped(array: np.ndarray) -> np.ndarray:
    """Exchange the first two of three gates: Keras' order is update, reset, new."""
    reset, update, new = np.split(array, 3)
    return np.concatenate([update, reset, new])


def places(named: NamedLayer) -> dict[str, Place]:
    """Return where a layer holds each of its parameters, by canonical name."""
    found, count = of_layers.places(named, _path), channels(named.input_shape)
    if isinstance(named.layer, models.GRU):
        rows = {name: int(name.startswith("bias_hh")) for name in found}
        return {name: GRUPlace(**vars(p), row=rows[name]) for name, p in found.items()}
    if isinstance(named.layer, models.PReLU):  # slopes have as many axes as an example
        ones = [1] * (len(named.input_shape) - 1)
        return {name: replace(p, own_shape=(*ones, *p.shape)) for name, p in found.items()}
    if is_depthwise(named.layer, count):
        weight = found["weight"]
        own_shape = (*weight.own_shape[:-2], count, weight.shape[0] // count)
        found["weight"] = replace(weight, own_shape=own_shape)
    return found


def arrays_by_path(places: Mapping[str, Place], weights: Weights) -> dict[str, np.ndarray]:
    """Return Keras' arrays of canonical weights; both biases of a GRU are rows of one.

    places: where Keras holds each parameter, by full canonical name.
    """
    found: dict[str, np.ndarray] = {}
    for name, place in places.items():
        array = place.to_framework(weights[name])
        found[place.path] = found[place.path] + array if place.path in found else array
    return found


DENSE = {"weight": "kernel", "bias": "bias"}
NORM = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "moving_mean",
    "running_var": "moving_variance",
}
CELL = {"weight_ih": "kernel", "weight_hh": "recurrent_kernel", "bias": "bias", "bias_hh": "bias"}


def _path(named: NamedLayer, name: str) -> str:
    """Return the attributes of a layer that lead to a parameter, "forward_layer.cell.kernel"."""
    match named.layer:
        case models.BatchNorm() | models.GroupNorm() | models.LayerNorm():
            return NORM[name]
        case models.PReLU():
            return "alpha"
        case models.RMSNorm():
            return "scale"
        case models.Embedding():
            return "embeddings"
        case models.PositionEmbedding() | models.ClassToken() | models.Scale():
            return "weight"
        case models.MultiHeadAttention() if "norm" in name:
            return name.replace("weight", "scale")
        case models.MultiHeadAttention():
            projection, kind = name.split("_")
            return f"{projection}_dense.{DENSE[kind]}"
        case models.LSTM(bidirectional=both) | models.GRU(bidirectional=both):
            base = name.removesuffix("_reverse")
            holder = "forward_layer." if base == name else "backward_layer."
            return f"{holder if both else ''}cell.{CELL[base]}"
    return DENSE[name]
