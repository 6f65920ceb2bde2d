"""Describes a model by an order of its layers that takes less time, for adapters' variants."""

from __future__ import annotations

from dataclasses import replace

from . import Branches, Layer, MaxPool, Model, ReLU


def pool_before_relu(model: Model) -> Model:
    """Return the model with each max-pool before the ReLU that was in front of it.

    The largest value stays the largest one when negative values become 0, so the values and the
    gradients stay the same, to the last bit. The ReLU then has fewer values.
    """
    return replace(model, layers=_reordered(model.layers))


def _reordered(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    found: list[Layer] = []
    for layer in layers:
        if isinstance(layer, Branches):
            layer = replace(layer, branches=tuple(map(_reordered, layer.branches)))
        behind_relu = isinstance(layer, MaxPool) and found and isinstance(found[-1], ReLU)
        found.insert(len(found) - 1 if behind_relu else len(found), layer)
    return tuple(found)
