"""Describe convolutions, pools, and what makes vectors or sequences of pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...inputs.checks import Boolean, OptionalStd, Pair, PairFrom0, Size
from ..parameters import GlorotUniform, Parameter, Shape, normal_or, weight_and_bias
from .layer import Layer, require_image


@dataclass(frozen=True)
class Conv(Layer):
    """Cross-correlates in 2-D, zero-padded on both sides: (C, H, W) to (features, H', W').

    bias: whether a number for each feature is added. std: Glorot's uniform by default.
    """

    features: Size
    kernel: Pair
    stride: Pair = (1, 1)
    padding: PairFrom0 = (0, 0)
    bias: Boolean = True
    std: OptionalStd = None

    def output_shape(self, input_shape: Shape) -> Shape:
        _, *size = require_image(self, input_shape)
        return (self.features, *_count_windows(self, size, self.kernel, self.stride, self.padding))

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        channels = input_shape[0]
        area = math.prod(self.kernel)
        initializer = normal_or(GlorotUniform(channels * area, self.features * area), self.std)
        weight = Parameter((self.features, channels, *self.kernel), initializer)
        return weight_and_bias(weight, self.bias)

    def forward_flops(self, input_shape: Shape) -> int:
        per_output_value = 2 * input_shape[0] * math.prod(self.kernel)
        return per_output_value * math.prod(self.output_shape(input_shape))


@dataclass(frozen=True)
class MaxPool(Layer):
    """Takes the maximum of each window, without padding: (C, H, W) to (C, H', W')."""

    window: Pair
    stride: Pair

    def output_shape(self, input_shape: Shape) -> Shape:
        channels, *size = require_image(self, input_shape)
        return (channels, *_count_windows(self, size, self.window, self.stride, (0, 0)))


@dataclass(frozen=True)
class AveragePool(Layer):
    """Takes the mean of each window, zero-padded on both sides: (C, H, W) to (C, H', W').

    padding: at most half of the window; its zeros count.
    """

    window: Pair
    stride: Pair
    padding: PairFrom0 = (0, 0)

    def output_shape(self, input_shape: Shape) -> Shape:
        if any(2 * p > w for p, w in zip(self.padding, self.window, strict=True)):
            raise ValueError(f"{self} is padded by more than half of its window")
        channels, *size = require_image(self, input_shape)
        return (channels, *_count_windows(self, size, self.window, self.stride, self.padding))


@dataclass(frozen=True)
class GlobalAveragePool(Layer):
    """Takes the mean of each channel of an image (C, H, W) or feature of a sequence (L, F)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) == 2:
            return input_shape[1:]
        return require_image(self, input_shape)[:1]


@dataclass(frozen=True)
class Flatten(Layer):
    """Joins all axes into one, the last running fastest: (C, H, W) to (C * H * W,)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return (math.prod(input_shape),)


@dataclass(frozen=True)
class ToSequence(Layer):
    """Makes a sequence of an image's places, row by row: (C, H, W) to (H * W, C)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        channels, height, width = require_image(self, input_shape)
        return (height * width, channels)


def _count_windows(
    layer: Layer,
    size: list[int],
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Shape:
    """Return the number of windows along each axis; a remainder at the end is left out."""
    counts = tuple(
        (n + 2 * p - w) // s + 1 for n, w, s, p in zip(size, window, stride, padding, strict=True)
    )
    if min(counts) < 1:
        raise ValueError(f"{layer} does not fit into an image of {size[0]} x {size[1]}")
    return counts
