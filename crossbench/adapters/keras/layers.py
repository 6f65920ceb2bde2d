"""Add what keras.layers lacks or computes differently, each on top of Keras' own.

The programs that source.py writes hold those that they need, without annotations.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops


class BatchNorm(keras.layers.BatchNormalization):
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


class Dropout(keras.layers.Dropout):
    """Apply the given mask, if there is one (in the proof of sameness); else be Keras' own."""

    given: Any = None

    def call(self, inputs: Any, training: bool = False) -> Any:
        if self.given is None:
            return super().call(inputs, training=training)
        return inputs * ops.cast(self.given, inputs.dtype) / (1 - self.rate)


def gelu(inputs: Any, tanh: bool = False) -> Any:
    """Return Keras' own; on TensorFlow the formula, with constants of the inputs' dtype.

    TensorFlow's constants are in float32, in a float64 job too: an error of 5e-9 (2.21).
    """
    if keras.config.backend() != "tensorflow":
        return keras.activations.gelu(inputs, approximate=tanh)
    if not tanh:
        return inputs / 2 * (1 + ops.erf(inputs / ops.cast(np.sqrt(2), inputs.dtype)))
    root = ops.cast(np.sqrt(2 / np.pi), inputs.dtype)
    cubic = ops.cast(np.float64(0.044715), inputs.dtype)
    return inputs / 2 * (1 + ops.tanh(root * (inputs + cubic * inputs**3)))


class PositionEmbedding(keras.layers.Layer):
    """Add a weight for each place of a sequence."""

    def build(self, input_shape: Any) -> None:
        shape = input_shape[1:]
        self.weight = self.add_weight(shape=shape, initializer="zeros", name="weight")

    def call(self, sequences: Any) -> Any:
        return sequences + self.weight


class ClassToken(keras.layers.Layer):
    """Put the same weight before each sequence."""

    def build(self, input_shape: Any) -> None:
        shape = input_shape[-1:]
        self.weight = self.add_weight(shape=shape, initializer="zeros", name="weight")

    def call(self, sequences: Any) -> Any:
        size = ops.shape(sequences)[0]
        token = ops.broadcast_to(self.weight, (size, 1, sequences.shape[-1]))
        return ops.concatenate([token, sequences], axis=1)


class SelfAttention(keras.layers.MultiHeadAttention):
    """Attend with a causal mask, or with none.

    The softmax of keras.ops.dot_product_attention is in float32 on TensorFlow and JAX, whatever the
    tensors are: a float64 job, which is only ever proved, has the same formula written out.
    """

    def __init__(self, causal: bool, heads: int, width: int, **options: Any) -> None:
        super().__init__(heads, width, **options)
        self.causal = causal

    def build(self, input_shape: Any) -> None:
        super().build(input_shape, input_shape)

    def call(self, sequences: Any) -> Any:
        if self.compute_dtype == "float64":
            return self._in_float64(sequences)
        return super().call(sequences, sequences, use_causal_mask=self.causal)

    def _in_float64(self, sequences: Any) -> Any:
        denses = (self._query_dense, self._key_dense, self._value_dense)
        query, key, value = (dense(sequences) for dense in denses)
        scores = ops.einsum("nqhd,nkhd->nhqk", query, key) / np.sqrt(query.shape[-1])
        if self.causal:
            length = scores.shape[-1]
            scores = ops.where(np.tri(length, dtype=bool), scores, -np.inf)
        joined = ops.einsum("nhqk,nkhd->nqhd", ops.softmax(scores), value)
        return self._output_dense(joined)

    def compute_output_spec(self, sequences: Any) -> Any:
        return keras.KerasTensor(sequences.shape, dtype=self.compute_dtype)


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
