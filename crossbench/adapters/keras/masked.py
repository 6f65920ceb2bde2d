"""Train a model of the module with dropout masks that are given: for the proof."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
from keras import ops


class Masked(keras.Model):
    """Apply a model to a dict of its "inputs" and of "masks", by the name of their dropout.

    dropouts: the names, by the identity of the model's layer.
    """

    def __init__(self, model: Any, dropouts: Mapping[int, str]) -> None:
        super().__init__()
        self.model, self.names = model, dropouts
        self.built = True  # the model has all variables

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        masks = {layer: inputs["masks"][name] for layer, name in self.names.items()}
        with given(masks):
            return self.model(inputs["inputs"], training=training)


@contextmanager
def given(masks: Mapping[int, Any]) -> Iterator[None]:
    """Have dropouts apply masks, by the identity of the layer, in place of those that they draw."""
    kind = keras.layers.Dropout
    draw = kind.call

    def call(self: Any, inputs: Any, training: bool = False) -> Any:
        if id(self) not in masks:
            return draw(self, inputs, training)
        return inputs * ops.cast(masks[id(self)], inputs.dtype) / (1 - self.rate)

    kind.call = call
    try:
        yield
    finally:
        kind.call = draw
