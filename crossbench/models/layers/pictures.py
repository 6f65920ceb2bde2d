"""Describe pools, paddings, upsampling, and what makes other shapes of pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from ...inputs.checks import SHAPE, Padding, Pair, PairFrom0, Size, one_of
from ..parameters import Shape
from .convolutions import Window, count_windows, window
from .layer import Layer, require_image

NEAREST, BILINEAR = "nearest", "bilinear"
ZEROS, REFLECT = "zeros", "reflect"


@dataclass(frozen=True)
class Pool(Layer):
    """Describes a layer that makes one value of each window, padded on both sides by at most half
    of the window: (C, H, W) to (C, H', W').
    """

    window: Pair
    stride: Pair
    padding: PairFrom0 = (0, 0)

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(
            window(*axis) for axis in zip(self.window, self.stride, self.padding, strict=True)
        )

    def output_shape(self, input_shape: Shape) -> Shape:
        if any(2 * p > w for p, w in zip(self.padding, self.window, strict=True)):
            raise ValueError(f"{self} is padded by more than half of its window")
        channels, *size = require_image(self, input_shape)
        return (channels, *count_windows(self, self.windows, size))


@dataclass(frozen=True)
class MaxPool(Pool):
    """Takes the maximum of each window, padded with minus infinity: (C, H, W) to (C, H', W').

    padding: at most half of the window.
    """


@dataclass(frozen=True)
class AveragePool(Pool):
    """Takes the mean of each window, zero-padded on both sides: (C, H, W) to (C, H', W').

    padding: at most half of the window; its zeros count.
    """


class GlobalPool(Layer):
    """Describes a layer that makes one value of each channel of an image (C, H, W), or of each
    feature of a sequence (L, F).
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) == 2:
            return input_shape[1:]
        return require_image(self, input_shape)[:1]


@dataclass(frozen=True)
class GlobalAveragePool(GlobalPool):
    """Takes the mean of each channel of an image (C, H, W) or feature of a sequence (L, F)."""


@dataclass(frozen=True)
class GlobalMaxPool(GlobalPool):
    """Takes the maximum of each channel of an image (C, H, W) or feature of a sequence (L, F)."""


@dataclass(frozen=True)
class Upsample(Layer):
    """Makes an image `factor` times as high and as wide: (C, H, W) to (C, factor * H, factor * W).

    mode: "nearest" repeats each value; "bilinear" interpolates between the centers of the values,
    and repeats the outermost ones beyond them (align_corners=False in PyTorch).
    """

    factor: Size
    mode: Annotated[str, one_of(NEAREST, BILINEAR)] = NEAREST

    def output_shape(self, input_shape: Shape) -> Shape:
        channels, height, width = require_image(self, input_shape)
        return (channels, self.factor * height, self.factor * width)


@dataclass(frozen=True)
class Pad(Layer):
    """Adds rows and columns around an image: (C, H, W) to (C, H', W').

    padding: (vertical, horizontal), each the same on both sides or a pair: ((top, bottom), (left,
    right)). mode: "zeros", or "reflect" for the values beside the edge, in reverse order.
    """

    padding: Padding
    mode: Annotated[str, one_of(ZEROS, REFLECT)] = ZEROS

    @property
    def windows(self) -> tuple[Window, ...]:
        """Return windows of one place, with this padding."""
        return tuple(window(1, 1, sides) for sides in self.padding)

    def output_shape(self, input_shape: Shape) -> Shape:
        channels, *size = require_image(self, input_shape)
        axes = list(zip(size, self.windows, strict=True))
        if self.mode == REFLECT and any(max(w.before, w.after) >= n for n, w in axes):
            raise ValueError(f"{self} reflects more than an image of {size[0]} x {size[1]} has")
        return (channels, *(w.padded(n) for n, w in axes))


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


@dataclass(frozen=True)
class Reshape(Layer):
    """Gives the values, in the order of Flatten, another shape of one, two or three axes."""

    shape: Annotated[Shape, SHAPE]

    def output_shape(self, input_shape: Shape) -> Shape:
        if math.prod(self.shape) != math.prod(input_shape):
            raise ValueError(f"{self} has another number of values than the shape {input_shape}")
        return self.shape
