"""Describe pools, of sequences too, and paddings, upsampling and other shapes of pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...inputs.checks import FROM_0, SHAPE, Padding, Pair, PairFrom0, Size, one_of
from ..parameters import Shape
from .convolutions import Window, count_windows, window
from .layer import Layer, require_image, require_sequence

NEAREST, BILINEAR = "nearest", "bilinear"
ZEROS, REFLECT = "zeros", "reflect"


class Pool(Layer):
    """Describes a layer that makes one value of each window, padded on both sides by at most half
    of the window.
    """

    is_max: ClassVar[bool]

    @property
    def windows(self) -> tuple[Window, ...]:
        raise NotImplementedError

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the size of the window on each axis."""
        return tuple(window.size for window in self.windows)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(window.stride for window in self.windows)

    @property
    def paddings(self) -> tuple[int, ...]:
        """Return the padding of both sides of each axis."""
        return tuple(window.before for window in self.windows)

    def counts(self, size: Iterable[int]) -> Shape:
        """Return the number of windows along each axis."""
        if any(2 * window.before > window.size for window in self.windows):
            raise ValueError(f"{self} is padded by more than half of its window")
        return count_windows(self, self.windows, size)


@dataclass(frozen=True)
class PicturePool(Pool):
    """Describes a pool of a picture: (C, H, W) to (C, H', W')."""

    window: Pair
    stride: Pair
    padding: PairFrom0 = (0, 0)

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(
            window(*axis) for axis in zip(self.window, self.stride, self.padding, strict=True)
        )

    def output_shape(self, input_shape: Shape) -> Shape:
        channels, *size = require_image(self, input_shape)
        return (channels, *self.counts(size))


@dataclass(frozen=True)
class SequencePool(Pool):
    """Describes a pool along a sequence: (L, F) to (L', F)."""

    window: Size
    stride: Size
    padding: Annotated[int, FROM_0] = 0

    @property
    def windows(self) -> tuple[Window, ...]:
        return (window(self.window, self.stride, self.padding),)

    def output_shape(self, input_shape: Shape) -> Shape:
        length, features = require_sequence(self, input_shape)
        return (*self.counts([length]), features)


@dataclass(frozen=True)
class MaxPool(PicturePool):
    """Takes the maximum of each window, padded with minus infinity: (C, H, W) to (C, H', W').

    padding: at most half of the window.
    """

    is_max = True


@dataclass(frozen=True)
class MaxPool1D(SequencePool):
    """Takes the maximum of each window of a sequence, padded with minus infinity: (L, F) to (L',
    F).

    padding: at most half of the window.
    """

    is_max = True


@dataclass(frozen=True)
class AveragePool(PicturePool):
    """Takes the mean of each window, zero-padded on both sides: (C, H, W) to (C, H', W').

    padding: at most half of the window; its zeros count.
    """

    is_max = False


@dataclass(frozen=True)
class AveragePool1D(SequencePool):
    """Takes the mean of each window of a sequence, zero-padded on both sides: (L, F) to (L', F).

    padding: at most half of the window; its zeros count.
    """

    is_max = False


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
class Transpose(Layer):
    """Exchanges the places and the features of a sequence: (L, F) to (F, L)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return require_sequence(self, input_shape)[::-1]


@dataclass(frozen=True)
class Reshape(Layer):
    """Gives the values, in the order of Flatten, another shape of one, two or three axes."""

    shape: Annotated[Shape, SHAPE]

    def output_shape(self, input_shape: Shape) -> Shape:
        if math.prod(self.shape) != math.prod(input_shape):
            raise ValueError(f"{self} has another number of values than the shape {input_shape}")
        return self.shape
