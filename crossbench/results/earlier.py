"""Brings what files of earlier versions hold to its present form."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from .records import Records

RENAMED = {
    b"allocator_settings": b"environment",
    b"masked_losses": b"undropped_losses",
    b"given dropout masks": b"without dropouts",
}
"""Map names of schema 15, the first that was published, to the present ones. The losses that are
without dropouts now were of given dropout masks, and are held to the same bounds."""
ATTENTION_OPTIONS = ("kv_heads", "head_features", "window", "rotary", "norm", "output_bias")
BOTH_BIASES = {"sequences": False, "both_biases": False}
ADDED: dict[str, dict[str, Any]] = {
    "BatchNorm": {"affine": True},
    "Conv": {"groups": 1, "dilation": [1, 1]},
    "GRU": BOTH_BIASES,
    "LSTM": BOTH_BIASES,
    "LayerNorm": {"affine": True},
    "MaxPool": {"padding": [0, 0]},
    "MultiHeadAttention": dict.fromkeys(ATTENTION_OPTIONS),
    "RMSNorm": {"affine": True},
    "SGD": {"nesterov": False, "weight_decay": 0.0, "matrices_only": False},
}
"""Values of the fields that layers and optimizers had not yet, by their type."""


def with_present_names(raw: bytes) -> bytes:
    """Return a file of schema 15 with the names of the present one."""
    pattern = rb'"(%s)"(?=\s*:)' % b"|".join(RENAMED)
    return re.sub(pattern, lambda found: b'"%s"' % RENAMED[found[1]], raw)


def describe_anew(comparison: Records) -> None:
    """Describe the model as it is described today, so that it is the same one as in a new run."""
    model, names = comparison.model, dict[str, str]()
    model["layers"] = [_layer(layer, names) for layer in model["layers"]]
    model["optimizer"] = _with_added(model["optimizer"])
    comparison.parts = [replace(p, name=names.get(p.name, p.name)) for p in comparison.parts]
    for result in comparison.results:
        result.parts = {names.get(name, name): part for name, part in result.parts.items()}


def _layer(layer: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return a layer's description; one with branches was a Residual.

    names: takes the present name of each, by the one that it had.
    """
    if layer["type"] == "Residual":
        name = names[layer["name"]] = layer["name"].replace("residual", "add")
        layer = {
            "type": "Branches",
            "name": name,
            "input_shape": layer["input_shape"],
            "branches": [layer["body"], layer["shortcut"]],
            "join": "add",
        }
    if "branches" in layer:
        branches = [[_layer(inner, names) for inner in branch] for branch in layer["branches"]]
        return layer | {"branches": branches}
    return _with_added(layer)


def _with_added(described: dict[str, Any]) -> dict[str, Any]:
    return described | ADDED.get(described["type"], {}) | described
