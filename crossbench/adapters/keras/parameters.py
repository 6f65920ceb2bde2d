"""Say which attributes of a Keras layer hold its parameters. Imports no Keras."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ... import models
from ...models.model import NamedLayer
from ...source import places as of_layers
from ...source.places import Place


class GRUPlace(Place):
    """Says where Keras holds a parameter of a GRU, whose gates have another order.

    A bias has a second row, that of cuDNN's formula, which stays at 0.
    """

    def to_framework(self, array: np.ndarray) -> np.ndarray:
        array = super().to_framework(swapped(array))
        return np.stack([array, np.zeros_like(array)]) if array.ndim == 1 else array

    def from_framework(self, array: np.ndarray) -> np.ndarray:
        return swapped(super().from_framework(array[0] if len(self.shape) == 1 else array))


def swapped(array: np.ndarray) -> np.ndarray:
    """Exchange the first two of three gates: Keras' order is update, reset, new."""
    reset, update, new = np.split(array, 3)
    return np.concatenate([update, reset, new])


def places(named: NamedLayer) -> dict[str, Place]:
    """Return where a layer holds each of its parameters, by canonical name."""
    kind = GRUPlace if isinstance(named.layer, models.GRU) else Place
    found = of_layers.places(named, _path, kind)
    if isinstance(named.layer, models.PReLU):  # slopes have as many axes as an example
        ones = [1] * (len(named.input_shape) - 1)
        return {
            name: replace(place, own_shape=(*ones, *place.shape)) for name, place in found.items()
        }
    return found


DENSE = {"weight": "kernel", "bias": "bias"}
NORM = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "moving_mean",
    "running_var": "moving_variance",
}
CELL = {"weight_ih": "kernel", "weight_hh": "recurrent_kernel", "bias": "bias"}


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
        case models.MultiHeadAttention():
            projection, kind = name.split("_")
            return f"{projection}_dense.{DENSE[kind]}"
        case models.LSTM(bidirectional=both) | models.GRU(bidirectional=both):
            base = name.removesuffix("_reverse")
            holder = "forward_layer." if base == name else "backward_layer."
            return f"{holder if both else ''}cell.{CELL[base]}"
    return DENSE[name]
