"""Computes convolutions as matrix multiplications of patches, for pieces of a batch.

On a CPU XLA's own convolution takes a slow path inside of a loop (jax issue 12868), these do not.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


def disjoint_max_pool(x: Any, window: tuple[int, int]) -> Any:
    """Return the maximum of windows that do not overlap; (N, H, W, C), a rest is left out."""
    (_, height, width, _), (h, w) = x.shape, window
    x = x[:, : height // h * h, : width // w * w]
    return _maximum(x[:, row::h, column::w] for row in range(h) for column in range(w))


class PatchConv(nnx.Conv):
    """Compute a convolution and the max-pool behind it, (N, H, W, C), by patches.

    It does so only where `in_pieces` is set: the patches of a whole batch would not fit the caches.
    """

    def __init__(
        self, *arguments: Any, window: tuple[int, int] | None = None, **options: Any
    ) -> None:
        """Take nnx.Conv's arguments, and the window and stride of the max-pool; None without."""
        super().__init__(*arguments, **options)
        self.window, self.in_pieces = window, False

    def __call__(self, x: Any) -> Any:
        if not self.in_pieces:
            y = super().__call__(x)
            return disjoint_max_pool(y, self.window) if self.window else y
        x = jnp.pad(x, ((0, 0), *self.padding, (0, 0)))
        if self.window is None:
            y = _convolved(x, self.kernel[...], self.strides)
        else:
            y = _maximum(convolved_by_window(x, self.kernel[...], self.window))
        return y if self.bias is None else y + self.bias[...]


def convolved_by_window(x: Any, kernel: Any, window: tuple[int, int]) -> list[Any]:
    """Return a convolution's output at each place of its windows, (N, H / h, W / w, features) each.

    All places together are the features of one convolution. Its kernel holds the given one once for
    each place, shifted; its input has the pixels of a window as channels. That has a quarter of the
    patches, for windows of 2 by 2, and enough features to fill a processor's vectors.
    """
    (h, w), (height, width, channels, _) = window, kernel.shape
    windows = (x.shape[1] - height + 1) // h, (x.shape[2] - width + 1) // w
    rows, columns = -(-(height + h - 1) // h), -(-(width + w - 1) // w)  # of the wide kernel
    whole_height, whole_width = (windows[0] + rows - 1) * h, (windows[1] + columns - 1) * w
    # a negative width of lax.pad cuts off
    ends = (0, 0, 0), (0, whole_height - x.shape[1], 0), (0, whole_width - x.shape[2], 0), (0, 0, 0)
    x = jax.lax.pad(x, jnp.zeros((), x.dtype), ends)
    x = x.reshape(len(x), whole_height // h, h, whole_width // w, w, channels)
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(len(x), *x.shape[1:4:2], h * w * channels)
    shifted = [
        jnp.pad(
            kernel,
            ((i, rows * h - height - i), (j, columns * w - width - j), (0, 0), (0, 0)),
        )
        for i in range(h)
        for j in range(w)
    ]
    wide = jnp.concatenate(shifted, -1).reshape(rows, h, columns, w, channels, -1)
    wide = wide.transpose(0, 2, 1, 3, 4, 5).reshape(rows, columns, h * w * channels, -1)
    return jnp.split(_convolved(x, wide, (1, 1)), h * w, -1)


def _convolved(x: Any, kernel: Any, strides: tuple[int, int]) -> Any:
    """Return the convolution of (N, H, W, C), without padding, as one matrix multiplication."""
    (height, width, _, features), (down, right) = kernel.shape, strides
    rows, columns = (x.shape[1] - height) // down + 1, (x.shape[2] - width) // right + 1
    pixels = [
        x[:, i : i + (rows - 1) * down + 1 : down, j : j + (columns - 1) * right + 1 : right]
        for i in range(height)
        for j in range(width)
    ]
    patches = jnp.concatenate(pixels, -1).reshape(len(x) * rows * columns, -1)
    product = patches @ kernel.reshape(-1, features)
    return product.reshape(len(x), rows, columns, features)


def _maximum(values: Iterable[Any]) -> Any:
    """Return the largest of the values; of equal ones the first has the gradient."""
    return reduce(lambda a, b: jnp.where(a >= b, a, b), values)
