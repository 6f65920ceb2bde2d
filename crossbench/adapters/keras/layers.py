"""Add what keras.layers and keras.losses lack or compute differently, each on top of Keras' own.

The programs that source.py writes hold those that they need, without annotations.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from typing import Any

import keras
import numpy as np
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


class InfinityPadding1D(layers.ZeroPadding1D):
    """Pad with minus infinity, in front of a max-pool: Keras' own padding is another one."""

    def call(self, inputs: Any) -> Any:
        sides = ((0, 0), self.padding, (0, 0))
        return ops.pad(inputs, sides, constant_values=-float("inf"))


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


class SinusoidalPositions(layers.Layer):
    """Add sines and cosines of the place, in turn (Vaswani et al., 2017)."""

    def build(self, input_shape: Any) -> None:
        _, length, features = input_shape
        angles = place_angles(length, features, 10000.0)
        table = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        table = table.reshape(length, features)
        self.table = ops.convert_to_tensor(table, self.compute_dtype)

    def call(self, sequences: Any) -> Any:
        return sequences + self.table


def place_angles(length: int, features: int, base: Any) -> Any:
    """Return the angle of each place and pair of features, in float64."""
    frequencies = base ** (-np.arange(0, features, 2) / features)
    return np.outer(np.arange(length), frequencies)


class ClassToken(layers.Layer):
    """Put the same weight before each sequence."""

    def build(self, input_shape: Any) -> None:
        shape = input_shape[-1:]
        self.weight = self.add_weight(shape=shape, initializer="zeros", name="weight")

    def call(self, sequences: Any) -> Any:
        size = ops.shape(sequences)[0]
        token = ops.broadcast_to(self.weight, (size, 1, sequences.shape[-1]))
        return ops.concatenate([token, sequences], axis=1)


class GroupedQueryAttention(layers.Layer):
    """Attend as Keras' own layer of this name does, which has no rotary embedding and no norms.

    width: features of a head. window: attend to places that are fewer than so many away alone.
    norm: epsilon of the norms of each head's queries and keys, before the rotary embedding.
    """

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        width: int,
        causal: bool = False,
        window: Any = None,
        use_bias: bool = True,
        output_bias: bool = True,
        norm: Any = None,
        rotary: Any = None,
    ) -> None:
        super().__init__()
        self.shared = heads // kv_heads
        self.causal, self.window, self.output_bias = causal, window, output_bias
        self.query = head_projection(heads, width, use_bias, "query")
        self.key = head_projection(kv_heads, width, use_bias, "key")
        self.value = head_projection(kv_heads, width, use_bias, "value")
        self.query_norm = head_norm(norm, "query_norm")
        self.key_norm = head_norm(norm, "key_norm")
        self.rotary = rotary or layers.Identity()

    def build(self, input_shape: Any) -> None:
        _, length, features = input_shape
        *_, heads, width = self.query.compute_output_shape(input_shape)
        joined = (None, length, heads, width)
        self.attention_output = layers.EinsumDense(
            "nlhd,hdf->nlf",
            (None, features),
            bias_axes="f" if self.output_bias else None,
            name="attention_output",
        )
        for layer in self.query, self.key, self.value:
            layer.build(input_shape)
        for layer in self.query_norm, self.key_norm, self.rotary, self.attention_output:
            layer.build(joined)
        self.near = None
        if self.window is not None:
            distance = np.subtract.outer(np.arange(length), np.arange(length))
            self.near = ops.convert_to_tensor(abs(distance)[None, None] < self.window)

    def call(self, inputs: Any) -> Any:
        queries = self.rotary(self.query_norm(self.query(inputs)))
        keys = self.rotary(self.key_norm(self.key(inputs)))
        keys = ops.repeat(keys, self.shared, axis=2)
        values = ops.repeat(self.value(inputs), self.shared, axis=2)
        joined = ops.dot_product_attention(
            queries, keys, values, mask=self.near, is_causal=self.causal
        )
        return self.attention_output(joined)


def head_projection(heads: int, width: int, use_bias: bool, name: Any) -> Any:
    """Return a layer from (batch, length, features) to (batch, length, heads, width)."""
    bias_axes = "hd" if use_bias else None
    shape = (None, heads, width)
    return layers.EinsumDense("nlf,fhd->nlhd", shape, bias_axes=bias_axes, name=name)


def head_norm(epsilon: Any, name: Any) -> Any:
    """Return the norm of each head, or what changes nothing."""
    if epsilon is None:
        return layers.Identity()
    return layers.RMSNormalization(epsilon=epsilon, name=name)


class Rotary(layers.Layer):
    """Rotate pairs of the features (batch, length, heads, width) by angles that grow with the
    place: the i-th of both halves, as Llama does, or neighbours, as GPT-J does.
    """

    def __init__(self, base: Any, interleaved: bool = False) -> None:
        super().__init__()
        self.base, self.interleaved = base, interleaved

    def build(self, input_shape: Any) -> None:
        _, length, _, width = input_shape
        angles = place_angles(length, width, self.base)[:, None]
        self.cos = ops.convert_to_tensor(np.cos(angles), self.compute_dtype)
        self.sin = ops.convert_to_tensor(np.sin(angles), self.compute_dtype)

    def call(self, inputs: Any) -> Any:
        *places, width = inputs.shape[1:]
        axis, pairs = -2, (2, width // 2)
        if self.interleaved:
            axis, pairs = -1, (width // 2, 2)
        a, b = ops.unstack(ops.reshape(inputs, (-1, *places, *pairs)), axis=axis)
        rotated = (a * self.cos - b * self.sin, b * self.cos + a * self.sin)
        return ops.reshape(ops.stack(rotated, axis=axis), (-1, *places, width))


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
