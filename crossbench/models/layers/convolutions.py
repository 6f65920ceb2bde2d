"""Describe convolutions of pictures and sequences, and the windows that pools have, too."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...inputs.checks import Boolean, OptionalStd, Padding, Pair, PairFrom0, Sides, Size
from ..parameters import GlorotUniform, Parameter, Shape, Zeros, normal_or
from .layer import Layer, channels, require_image, require_sequence


@dataclass(frozen=True)
class Window:
    """Says which places a kernel or a pool takes along one axis.

    size: the number of places, `dilation` apart. stride: how far the windows are apart. before,
    after: the padding.
    """

    size: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def span(self) -> int:
        """Return the places from the first to the last one."""
        return (self.size - 1) * self.dilation + 1

    def padded(self, length: int) -> int:
        return length + self.before + self.after

    def count(self, length: int) -> int:
        """Return the number of windows along an axis; a remainder at the end is left out."""
        return (self.padded(length) - self.span) // self.stride + 1


def count_windows(layer: Layer, windows: Iterable[Window], size: Iterable[int]) -> Shape:
    """Return the number of windows along each axis; raise ValueError if there is none."""
    size = tuple(size)
    counts = tuple(window.count(n) for window, n in zip(windows, size, strict=True))
    if min(counts) < 1:
        what = "an image" if len(size) == 2 else "a sequence"
        raise ValueError(f"{layer} does not fit into {what} of {' x '.join(map(str, size))}")
    return counts


def window(size: int, stride: int = 1, padding: Sides = 0, dilation: int = 1) -> Window:
    before, after = padding if isinstance(padding, tuple) else (padding, padding)
    return Window(size, stride, before, after, dilation)


class Convolution(Layer):
    """Describes a layer that moves a kernel along its input, with the fields of Conv."""

    features: int
    kernel: Any
    stride: Any
    padding: Any
    bias: bool
    std: float | None
    groups: int = 1
    dilation: Any = (1, 1)

    @property
    def windows(self) -> tuple[Window, ...]:
        """Return the windows along the axes; of a TransposedConv, those of the Conv."""
        axes = zip(self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple(window(*axis) for axis in axes)

    def channels(self, input_shape: Shape) -> int:
        """Return the number of channels of the input, or of its features."""
        return channels(input_shape)

    @property
    def kernel_size(self) -> Shape:
        return tuple(window.size for window in self.windows)

    @property
    def strides(self) -> Shape:
        return tuple(window.stride for window in self.windows)

    @property
    def dilations(self) -> Shape:
        return tuple(window.dilation for window in self.windows)

    @property
    def is_symmetric(self) -> bool:
        """Return whether the padding is the same before and after."""
        return all(window.before == window.after for window in self.windows)

    def kernel_shape(self, channels: int) -> Shape:
        return (self.features, channels // self.groups, *self.kernel_size)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        shape = self.kernel_shape(self.channels(input_shape))
        area = math.prod(self.kernel_size)
        initializer = normal_or(GlorotUniform(shape[1] * area, shape[0] * area), self.std)
        weight = {"weight": Parameter(shape, initializer)}
        return weight | ({"bias": Parameter((self.features,), Zeros())} if self.bias else {})

    def forward_flops(self, input_shape: Shape) -> int:
        kernel = math.prod(self.kernel_shape(self.channels(input_shape)))
        places = math.prod(self.output_shape(input_shape)) // self.features
        return 2 * kernel * places

    def _require_groups(self, channels: int) -> None:
        if channels % self.groups or self.features % self.groups:
            what = f"{channels} channels and {self.features} features"
            raise ValueError(f"{self} cannot share {what} among its groups")


@dataclass(frozen=True)
class Conv(Convolution):
    """Cross-correlates in 2-D, zero-padded: (C, H, W) to (features, H', W').

    padding: (vertical, horizontal), each the same on both sides or a pair: ((top, bottom), (left,
    right)). bias: whether a number for each feature is added. std: Glorot's uniform by default.
    groups: features from g * features / groups to (g + 1) * features / groups are computed of the
    channels from g * C / groups to (g + 1) * C / groups alone; as many groups as channels make a
    depthwise convolution (Howard et al., 2017). dilation: how far the kernel's places are apart (Yu
    and Koltun, 2016).
    """

    features: Size
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Padding = (0, 0)
    bias: Boolean = True
    std: OptionalStd = None
    groups: Size = 1
    dilation: Pair = (1, 1)

    def output_shape(self, input_shape: Shape) -> Shape:
        channels, *size = require_image(self, input_shape)
        self._require_groups(channels)
        return (self.features, *count_windows(self, self.windows, size))


@dataclass(frozen=True)
class Conv1D(Convolution):
    """Cross-correlates along a sequence, zero-padded: (L, F) to (L', features).

    The fields are those of Conv, with one number for the axis. padding: on both sides, or (before,
    after): (kernel - 1, 0) is causal.
    """

    features: Size
    kernel: Size
    stride: Size = 1
    padding: Sides = 0
    bias: Boolean = True
    std: OptionalStd = None
    groups: Size = 1
    dilation: Size = 1

    @property
    def windows(self) -> tuple[Window, ...]:
        return (window(self.kernel, self.stride, self.padding, self.dilation),)

    def output_shape(self, input_shape: Shape) -> Shape:
        length, channels = require_sequence(self, input_shape)
        self._require_groups(channels)
        return (*count_windows(self, self.windows, [length]), self.features)


@dataclass(frozen=True)
class TransposedConv(Convolution):
    """Computes the gradient of the input of a Conv of this kernel, stride and padding (Zeiler et
    al., 2010): (C, H, W) to (features, H', W'), where H' is (H - 1) * stride - 2 * padding + kernel
    + output_padding.

    The weight is (C, features, height, width), that of the Conv: not flipped. padding: rows and
    columns that are left out on both sides, fewer than the kernel has. output_padding: those that
    are added at the bottom and on the right, fewer than the stride.
    """

    features: Size
    kernel: Pair
    stride: Pair = (1, 1)
    padding: PairFrom0 = (0, 0)
    bias: Boolean = True
    std: OptionalStd = None
    output_padding: PairFrom0 = (0, 0)

    def kernel_shape(self, channels: int) -> Shape:
        return (channels, self.features, *self.kernel_size)

    def output_shape(self, input_shape: Shape) -> Shape:
        _, *size = require_image(self, input_shape)
        axes = list(zip(size, self.windows, self.output_padding, strict=True))
        if any(w.before >= w.size or more >= w.stride for _, w, more in axes):
            raise ValueError(f"{self}: padding must be under kernel, output_padding under stride")
        lengths = tuple((n - 1) * w.stride + w.size - 2 * w.before + more for n, w, more in axes)
        if min(lengths) < 1:
            raise ValueError(f"{self} leaves nothing of an image of {size[0]} x {size[1]}")
        return (self.features, *lengths)

    def forward_flops(self, input_shape: Shape) -> int:
        return 2 * math.prod(self.kernel_shape(input_shape[0])) * math.prod(input_shape[1:])
