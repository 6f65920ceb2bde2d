"""Compute convolutions: of pictures, of sequences, and transposed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ... import models
from ...models.layers.convolutions import Window
from ...models.model import NamedLayer
from ...models.parameters import Shape
from .passes import Outcome, Pass, along_channels, channels_first, forward, sum_in_order
from .windows import patches, summed

BLOCK_VALUES = 2**19
"""Values of a convolution's patches that are computed at a time."""


@dataclass(frozen=True)
class Correlation:
    """Cross-correlates (batch, C, *size) with a kernel (O, C / groups, *sizes of the windows).

    Each group's patches are the rows of a matrix, with which its part of the kernel is multiplied.
    """

    windows: Sequence[Window]
    groups: int = 1

    def apply(self, x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        """Return the output, (batch, O, *counts)."""
        counts = [w.count(n) for w, n in zip(self.windows, x.shape[2:], strict=True)]
        matrices = self._matrices(kernel).swapaxes(1, 2)
        blocks = (rows @ matrices for _, rows in self._patches(x))
        return np.concatenate([self._of_rows(block, counts, kernel.shape[:1]) for block in blocks])

    def kernel_gradient(self, x: np.ndarray, dy: np.ndarray, shape: Shape) -> np.ndarray:
        """Return the gradient of the kernel, which has this shape."""
        blocks = self._patches(x)
        products = (self._rows(dy[block]).swapaxes(1, 2) @ rows for block, rows in blocks)
        return sum(products, np.zeros((), x.dtype)).reshape(shape)

    def input_gradient(self, dy: np.ndarray, kernel: np.ndarray, size: Shape) -> np.ndarray:
        """Return the gradient of the input, whose places are of this size."""
        matrices, sizes = self._matrices(kernel), kernel.shape[2:]
        channels = self.groups * kernel.shape[1]
        blocks = []
        for block in _slices(len(dy), dy[0, 0].size * self.groups * kernel[0].size):
            rows = self._rows(dy[block]) @ matrices
            parts = self._of_rows(rows, dy.shape[2:], (channels, *sizes))
            cells = np.moveaxis(parts, range(-len(sizes), 0), range(len(sizes)))
            whole = (len(parts), channels, *size)
            blocks.append(summed(cells.__getitem__, self.windows, whole, dy.dtype))
        return np.concatenate(blocks)

    def _patches(self, x: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield slices of the batch, with the patches of each as rows."""
        found = patches(x, self.windows)
        for block in _slices(len(x), found[:1].size):
            yield block, self._rows(found[block])

    def _rows(self, values: np.ndarray) -> np.ndarray:
        """Return (groups, batch * counts, ...) of (batch, channels, *counts, ...)."""
        values = np.moveaxis(values, 1, 1 + len(self.windows))
        count = math.prod(values.shape[: 1 + len(self.windows)])
        return values.reshape(count, self.groups, -1).swapaxes(0, 1)

    def _of_rows(self, rows: np.ndarray, counts: Sequence[int], channels: Shape) -> np.ndarray:
        """Return (batch, *channels[:1], *counts, *channels[1:]): the inverse of `_rows`."""
        values = rows.swapaxes(0, 1).reshape(-1, *counts, *channels)
        return np.moveaxis(values, 1 + len(self.windows), 1)

    def _matrices(self, kernel: np.ndarray) -> np.ndarray:
        """Return the matrix of each group, (groups, O / groups, values of a row)."""
        return kernel.reshape(self.groups, len(kernel) // self.groups, -1)


@dataclass(frozen=True)
class DepthwiseCorrelation:
    """Does what Correlation does for groups of one channel and feature: a kernel (C, 1, *sizes).

    No framework adds up the terms of its gradient in blocks, as a matrix multiplication would.
    """

    windows: Sequence[Window]

    def apply(self, x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        """Return the output, (batch, C, *counts)."""
        weights = np.moveaxis(kernel[:, 0], 0, -1)
        parts = (along_channels(x, weights[cell]) * part for cell, part in self._cells(x))
        return sum(parts, np.zeros((), x.dtype))

    def kernel_gradient(self, x: np.ndarray, dy: np.ndarray, shape: Shape) -> np.ndarray:
        """Return the gradient of the kernel, which has this shape."""
        places = (0, *range(2, dy.ndim))
        terms = [sum_in_order(dy * part, places) for _, part in self._cells(x)]
        return np.stack(terms, 1).reshape(shape)

    def input_gradient(self, dy: np.ndarray, kernel: np.ndarray, size: Shape) -> np.ndarray:
        """Return the gradient of the input, whose places are of this size."""
        weights = np.moveaxis(kernel[:, 0], 0, -1)

        def part(cell: Shape) -> np.ndarray:
            return dy * along_channels(dy, weights[cell])

        return summed(part, self.windows, (*dy.shape[:2], *size), dy.dtype)

    def _cells(self, x: np.ndarray) -> Iterator[tuple[Shape, np.ndarray]]:
        """Yield the place in the windows of each of their cells, and the values in it."""
        found = patches(x, self.windows)
        for cell in np.ndindex(*found.shape[x.ndim :]):
            yield cell, found[..., *cell]


def _slices(examples: int, values: int) -> list[slice]:
    """Return slices of a batch whose patches, of so many values per example, fit the caches."""
    size = max(1, BLOCK_VALUES // values)
    return [slice(start, start + size) for start in range(0, examples, size)]


@forward.register(models.Conv)
@forward.register(models.Conv1D)
@forward.register(models.TransposedConv)
def _(layer: models.Convolution, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    """Compute with the channels before the places, as pictures have them."""
    is_transposed = isinstance(layer, models.TransposedConv)
    parameters = run.parameters(named)
    kernel, operand = run.operands(parameters["weight"], channels_first(x))
    correlation: Correlation | DepthwiseCorrelation = Correlation(layer.windows, layer.groups)
    if kernel.shape[:2] == (layer.groups, 1) and layer.groups > 1:
        correlation = DepthwiseCorrelation(layer.windows)
    if is_transposed:
        y = correlation.input_gradient(operand, kernel, named.output_shape[1:])
    else:
        y = correlation.apply(operand, kernel)

    def backward(dy: np.ndarray) -> np.ndarray:
        dy = channels_first(dy)
        (doperand,) = run.operands(dy)
        if is_transposed:
            dkernel = correlation.kernel_gradient(doperand, operand, kernel.shape)
            dx = correlation.apply(doperand, kernel)
        else:
            dkernel = correlation.kernel_gradient(operand, doperand, kernel.shape)
            dx = correlation.input_gradient(doperand, kernel, operand.shape[2:])
        places = (0, *range(2, dy.ndim))
        bias = {"bias": sum_in_order(dy, places)} if layer.bias else {}
        run.add_gradients(named, weight=dkernel, **bias)
        return channels_first(dx)

    if layer.bias:
        y = y + along_channels(y, parameters["bias"])
    return channels_first(y), backward
