"""Say which attributes of a Flax module hold the parameters of a layer. Imports no Flax."""

from __future__ import annotations

from ... import models
from ...models.model import NamedLayer

DENSE = {"weight": "kernel", "bias": "bias"}
NORM = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}
CELL = {
    "weight_ih": "dense_i.kernel",
    "weight_hh": "dense_h.kernel",
    "bias": "dense_i.bias",
    "bias_hh": "dense_h.bias",
}


def attributes(named: NamedLayer, name: str) -> str:
    """Return the attributes of a module that lead to a parameter, "cell.dense_i.kernel"."""
    match named.layer:
        case models.BatchNorm() | models.GroupNorm() | models.LayerNorm() | models.RMSNorm():
            return NORM[name]
        case models.PReLU() | models.Scale():
            return name
        case models.Embedding() | models.PositionEmbedding() | models.ClassToken():
            return "embedding"
        case models.MultiHeadAttention() if "norm" in name:
            return name.replace("weight", "scale")
        case models.MultiHeadAttention():
            projection, kind = name.split("_")
            return f"{projection.replace('output', 'out')}.{DENSE[kind]}"
        case models.LSTM() | models.GRU():
            base, layer = name.removesuffix("_reverse"), named.layer
            cell = f"cell.{CELL[base]}"
            if base == "bias" and isinstance(layer, models.LSTM) and not layer.both_biases:
                cell = "cell.dense_h.bias"  # the only one
            if not layer.bidirectional:
                return cell
            holder = "forward" if base == name else "backward"
            return f"{holder}_rnn.{cell}" if layer.sequences else f"{holder}.{cell}"
    return DENSE[name]
