"""Add what keras.layers lacks or computes differently, each on top of Keras' own."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops


class BatchNorm(keras.layers.BatchNormalization):
    """Divide the running variance by n - 1, as the other frameworks do; Keras divides by n."""

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        before = ops.copy(self.moving_variance) if training else None
        outputs = super().call(inputs, training=training, mask=mask)
        if training:
            n = ops.cast(ops.size(inputs), self.moving_variance.dtype) / inputs.shape[-1]
            change = self.moving_variance - self.momentum * before
            self.moving_variance.assign(self.moving_variance + change / (n - 1))
        return outputs


class Strided(keras.layers.Layer):
    """Keep every so many rows and columns of pictures, as a convolution of one pixel with a stride
    does first.
    """

    def __init__(self, stride: tuple[int, int], **options: Any) -> None:
        super().__init__(**options)
        self.stride = stride

    def call(self, pictures: Any) -> Any:
        return pictures[:, :: self.stride[0], :: self.stride[1]]


class Dropout(keras.layers.Dropout):
    """Apply the given mask, if there is one (in the proof of sameness); else be Keras' own."""

    given: Any = None

    def call(self, inputs: Any, training: bool = False) -> Any:
        if self.given is None:
            return super().call(inputs, training=training)
        return inputs * ops.cast(self.given, inputs.dtype) / (1 - self.rate)


class GELU(keras.layers.Layer):
    """Be Keras' own, not approximate; on TensorFlow its formula with an exact root of 2.

    TensorFlow's has a root in float32, in a float64 job too: an error of 5e-9 (2.21).
    """

    def call(self, inputs: Any) -> Any:
        if keras.config.backend() != "tensorflow":
            return keras.activations.gelu(inputs, approximate=False)
        root = ops.cast(np.sqrt(2), inputs.dtype)
        return inputs / 2 * (1 + ops.erf(inputs / root))


class OneHot(keras.layers.Layer):
    """Encode integers from 0 as one-hot vectors of the model's dtype."""

    def __init__(self, vocabulary: int, **options: Any) -> None:
        super().__init__(**options)
        self.vocabulary = vocabulary

    def call(self, numbers: Any) -> Any:
        return ops.one_hot(numbers, self.vocabulary, dtype=self.compute_dtype)


@keras.saving.register_keras_serializable("crossbench")  # Bidirectional copies its layer
class OneBias(keras.constraints.Constraint):
    """Keep the second row of a GRU's bias, which only cuDNN's formula has, at 0."""

    def __call__(self, bias: Any) -> Any:
        return ops.stack([bias[0], ops.zeros_like(bias[1])])


class Network(keras.Model):
    """Train a functional model, with dropout masks where they are given.

    Its inputs are those of the functional model, or a dict of them ("inputs") and of the masks by
    the name of their dropout.
    """

    def __init__(self, inputs: Any, outputs: Any, dropouts: dict[str, Dropout]) -> None:
        super().__init__()
        self.functional = keras.Model(inputs, outputs)
        self.dropouts = dropouts
        self.built = True  # the functional model has all variables

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if not isinstance(inputs, dict):
            return self.functional(inputs, training=training)
        try:
            for name, dropout in self.dropouts.items():
                dropout.given = inputs["masks"][name]
            return self.functional(inputs["inputs"], training=training)
        finally:
            for dropout in self.dropouts.values():
                dropout.given = None
