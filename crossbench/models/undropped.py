"""Describes a model whose dropouts drop nothing, to compare what is trained without chance."""

from __future__ import annotations

from dataclasses import replace

from . import Dropout, Layer, Model, Residual


def without_dropouts(model: Model) -> Model:
    """Return the model with each dropout's rate 0; the layers keep their names."""
    return replace(model, layers=_without(model.layers))


def _without(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    return tuple(_changed(layer) for layer in layers)


def _changed(layer: Layer) -> Layer:
    if isinstance(layer, Residual):
        return replace(layer, body=_without(layer.body), shortcut=_without(layer.shortcut))
    return Dropout(0.0) if isinstance(layer, Dropout) else layer
