"""Describes a model whose dropouts drop nothing, to compare what is trained without chance."""

from __future__ import annotations

from dataclasses import replace

from . import Branches, Dropout, Layer, Model


def without_dropouts(model: Model) -> Model:
    """Return the model with each dropout's rate 0; the layers keep their names."""
    return replace(model, layers=_without(model.layers))


def _without(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    return tuple(_changed(layer) for layer in layers)


def _changed(layer: Layer) -> Layer:
    if isinstance(layer, Branches):
        return replace(layer, branches=tuple(map(_without, layer.branches)))
    return Dropout(0.0) if isinstance(layer, Dropout) else layer
