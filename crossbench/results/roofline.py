"""Count the bytes that a training step moves, from the model's description.

S. Williams, A. Waterman and D. Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures", Communications of the ACM 52 (4), 2009.
"""

from __future__ import annotations

import math
from typing import Any

from ..inputs.names import BFLOAT16, FLOAT32, TF32, Compute

VALUE_BYTES = 4
"""Bytes of a float32: of a weight and its gradient in every precision."""
ACTIVATION_BYTES: dict[Compute, int] = {FLOAT32: VALUE_BYTES, TF32: VALUE_BYTES, BFLOAT16: 2}
"""Bytes of an activation, by precision."""
ACTIVATION_ACCESSES = 5
"""How often an activation is moved: written and read forward, read again backward, and its gradient
written and read."""
WEIGHT_ACCESSES = 6
"""How often a weight is moved in a step: read forward and backward, its gradient written and read,
and read and written by the optimizer, without the optimizer's state."""

GRADIENT_WEIGHT_ACCESSES = 4
"""The same without the optimizer."""


def training_bytes(model: dict[str, Any], batch_size: float, compute: Compute = FLOAT32) -> float:
    """Return the bytes that one example moves in a training step, if no tensor stays in a cache.

    model: Model.description(). The activations are the inputs of all layers, but of those that
    move nothing, Flatten and Reshape.
    """
    activations = sum(math.prod(layer["input_shape"]) for layer in _leaves(model["layers"]))
    weights = model["trained_parameters"] / batch_size
    moved = ACTIVATION_BYTES[compute] * ACTIVATION_ACCESSES * activations
    return moved + VALUE_BYTES * WEIGHT_ACCESSES * weights


def part_bytes(model: dict[str, Any]) -> tuple[float, float]:
    """Return the bytes that the gradients of a model move for each example, and in each step.

    model: Model.description(). The optimizer moves nothing here.
    """
    weights = GRADIENT_WEIGHT_ACCESSES * model["trained_parameters"]
    return training_bytes(model, math.inf), VALUE_BYTES * weights


def intensity(model: dict[str, Any], batch_size: int, compute: Compute) -> float:
    """Return the FLOPs of a training step for each byte that it moves in a precision."""
    return model["training_flops"] / training_bytes(model, batch_size, compute)


def inner_layers(layer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the layers of all branches."""
    return [inner for branch in layer.get("branches", []) for inner in branch]


def _leaves(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the layers that compute something, including those nested in others."""
    found = []
    for layer in layers:
        if inner := inner_layers(layer):
            found += _leaves(inner)
        elif layer["type"] not in ("Flatten", "Reshape"):
            found.append(layer)
    return found
