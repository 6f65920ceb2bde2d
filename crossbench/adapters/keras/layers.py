"""Add what keras.layers and keras.losses lack or compute differently, each on top of Keras' own.

The programs that source.py writes hold those that they need, without annotations.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops


class BatchNorm(layers.BatchNormalization):
    """Divide the running variance by n - 1, as the other frameworks do; Keras divides by n."""

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        before = ops.copy(self.moving_variance) if training else None
        outputs = super().call(inputs, training=training, mask=mask)
        if training:
            size = ops.cast(ops.size(inputs), self.moving_variance.dtype)
            n = size / inputs.shape[-1]
            change = self.moving_variance - self.momentum * before
            self.moving_variance.assign(self.moving_variance + change / (n - 1))
        return outputs


class Scale(layers.Layer):
    """Multiply each channel by a weight."""

    def build(self, input_shape: Any) -> None:
        shape = input_shape[-1:]
        self.weight = self.add_weight(shape=shape, initializer="ones", name="weight")

    def call(self, inputs: Any) -> Any:
        return inputs * self.weight


class InfinityPadding2D(layers.ZeroPadding2D):
    """Pad with minus infinity, in front of a max-pool: Keras' own padding is another one."""

    def call(self, inputs: Any) -> Any:
        sides = ((0, 0), *self.padding, (0, 0))
        return ops.pad(inputs, sides, constant_values=-float("inf"))


class PositionEmbedding(layers.Layer):
    """Add a weight for each place of a sequence."""

    def build(self, input_shape: Any) -> None:
        shape = input_shape[1:]
        self.weight = self.add_weight(shape=shape, initializer="zeros", name="weight")

    def call(self, sequences: Any) -> Any:
        return sequences + self.weight


class ClassToken(layers.Layer):
    """Put the same weight before each sequence."""

    def build(self, input_shape: Any) -> None:
        shape = input_shape[-1:]
        self.weight = self.add_weight(shape=shape, initializer="zeros", name="weight")

    def call(self, sequences: Any) -> Any:
        size = ops.shape(sequences)[0]
        token = ops.broadcast_to(self.weight, (size, 1, sequences.shape[-1]))
        return ops.concatenate([token, sequences], axis=1)


class SmoothedCrossEntropy(keras.losses.CategoricalCrossentropy):
    """Take classes for labels."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        classes = y_pred.shape[-1]
        one_hot = ops.one_hot(ops.cast(y_true, "int32"), classes, dtype=y_pred.dtype)
        return super().call(one_hot, y_pred)


class GivenGradient(keras.losses.Loss):
    """Return 0, and in the backward pass the labels as the gradient of the outputs."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        def zero(outputs: Any) -> Any:
            return ops.zeros((), outputs.dtype), lambda *_, upstream=None: y_true

        return ops.custom_gradient(zero)(y_pred)


@keras.saving.register_keras_serializable()  # Bidirectional copies its layer
class OneBias(keras.constraints.Constraint):
    """Keep the second row of a GRU's bias, which only cuDNN's formula has, at 0."""

    def __call__(self, bias: Any) -> Any:
        return ops.stack([bias[0], ops.zeros_like(bias[1])])
