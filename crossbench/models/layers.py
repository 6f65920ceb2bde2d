"""Layers without a framework: what they compute, their shapes, parameters and FLOPs.

Shapes leave out the batch axis. Images are (channels, height, width). Parameters have
one canonical form, torch's axis order: a convolution's kernel is (out, in, height, width)
and slides without flipping; a dense weight is (out, in).

To add a layer: a frozen dataclass here, and its translation in each adapter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Zeros:
    """Initial values of 0."""

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.zeros(shape, np.float32)


@dataclass(frozen=True)
class GlorotUniform:
    """Uniform in ±sqrt(6 / (fan_in + fan_out)): Flux's default (Glorot and Bengio, 2010)."""

    fan_in: int
    fan_out: int

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        bound = math.sqrt(6 / (self.fan_in + self.fan_out))
        return random.uniform(-bound, bound, shape).astype(np.float32)


@dataclass(frozen=True)
class Parameter:
    """One array of a layer: its canonical shape and where its values start."""

    shape: Shape
    initial: Zeros | GlorotUniform

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Layer:
    """One layer. The defaults are those of a layer without parameters that keeps the shape."""

    def output_shape(self, input_shape: Shape) -> Shape:
        """The shape after this layer; ValueError where the input does not fit it."""
        return input_shape

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        """The layer's parameters by name ("weight", "bias")."""
        return {}

    def forward_flops(self, input_shape: Shape) -> int:
        """Floating-point operations for one example, a multiply-add counted as two.

        Only the products are counted, as is the custom: biases, activations and pools are not.
        """
        return 0


@dataclass(frozen=True)
class Conv(Layer):
    """2-D cross-correlation with zero padding on both sides: (C, H, W) to (features, H', W')."""

    features: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    def output_shape(self, input_shape: Shape) -> Shape:
        _, *size = _image(self, input_shape)
        return (self.features, *_windows(self, size, self.kernel, self.stride, self.padding))

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        channels = input_shape[0]
        area = math.prod(self.kernel)
        initial = GlorotUniform(channels * area, self.features * area)
        return {
            "weight": Parameter((self.features, channels, *self.kernel), initial),
            "bias": Parameter((self.features,), Zeros()),
        }

    def forward_flops(self, input_shape: Shape) -> int:
        per_output = 2 * input_shape[0] * math.prod(self.kernel)
        return per_output * math.prod(self.output_shape(input_shape))


@dataclass(frozen=True)
class MaxPool(Layer):
    """The maximum of each window, without padding: (C, H, W) to (C, H', W')."""

    window: tuple[int, int]
    stride: tuple[int, int]

    def output_shape(self, input_shape: Shape) -> Shape:
        channels, *size = _image(self, input_shape)
        return (channels, *_windows(self, size, self.window, self.stride, (0, 0)))


@dataclass(frozen=True)
class ReLU(Layer):
    """max(x, 0)."""


@dataclass(frozen=True)
class Flatten(Layer):
    """All axes into one, the last running fastest: (C, H, W) to (C * H * W,)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return (math.prod(input_shape),)


@dataclass(frozen=True)
class Dense(Layer):
    """weight @ x + bias: (in,) to (features,)."""

    features: int

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(f"{self} takes a vector, not the shape {input_shape}: Flatten first")
        return (self.features,)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        (inputs,) = input_shape
        return {
            "weight": Parameter((self.features, inputs), GlorotUniform(inputs, self.features)),
            "bias": Parameter((self.features,), Zeros()),
        }

    def forward_flops(self, input_shape: Shape) -> int:
        return 2 * input_shape[0] * self.features


def _image(layer: Layer, shape: Shape) -> Shape:
    if len(shape) != 3:
        raise ValueError(f"{layer} takes (channels, height, width), not the shape {shape}")
    return shape


def _windows(
    layer: Layer,
    size: list[int],
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Shape:
    """How many windows fit along each axis; a remainder at the end is not covered."""
    counts = tuple(
        (n + 2 * p - w) // s + 1 for n, w, s, p in zip(size, window, stride, padding, strict=True)
    )
    if min(counts) < 1:
        raise ValueError(f"{layer} does not fit into an image of {size[0]} x {size[1]}")
    return counts
