"""Say which attributes of a Flax module hold the parameters of a layer. Imports no Flax."""

from __future__ import annotations

from collections.abc import Mapping

from ... import models
from ...models.model import NamedLayer
from ...source import places as of_layers
from ...source.places import Place


def places(named: NamedLayer) -> dict[str, Place]:
    """Return where a layer's module holds each of its parameters, by canonical name."""
    return of_layers.places(named, _path)


DENSE = {"weight": "kernel", "bias": "bias"}
NORM = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}
LSTM = {"weight_ih": "dense_i.kernel", "weight_hh": "dense_h.kernel", "bias": "dense_h.bias"}
GRU = LSTM | {"bias": "dense_i.bias"}


def _path(named: NamedLayer, name: str) -> str:
    """Return the attributes of a module that lead to a parameter, "cell.dense_i.kernel"."""
    match named.layer:
        case models.BatchNorm() | models.GroupNorm() | models.LayerNorm() | models.RMSNorm():
            return NORM[name]
        case models.PReLU() | models.Scale():
            return name
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
