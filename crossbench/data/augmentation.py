"""Shift and flip the pictures of a batch at random, anew in each epoch."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .sources import Augmentation


def augment(
    pictures: np.ndarray, augmentation: Augmentation, random: np.random.Generator
) -> np.ndarray:
    """Return a copy with each picture shifted and one in two flipped, as the augmentation says.

    pictures: (n, channels, height, width) uint8. The random numbers are drawn in a fixed order (n
    shifts down, n shifts right, n flips), even those that the augmentation does not use: so the
    shifts are the same with and without flips.
    """
    n, (height, width) = len(pictures), pictures.shape[2:]
    max_down, max_right = (_whole_pixels(augmentation.shift, size) for size in (height, width))
    down = random.integers(-max_down, max_down + 1, n)
    right = random.integers(-max_right, max_right + 1, n)
    flipped = random.random(n) < 0.5
    # a shifted picture is a window on the picture padded with its edges: no loop over pictures
    margin = ((0, 0), (0, 0), (max_down, max_down), (max_right, max_right))
    padded = np.pad(pictures, margin, mode="edge")
    windows = sliding_window_view(padded, (height, width), axis=(2, 3))
    shifted = windows[np.arange(n), :, max_down - down, max_right - right]
    if augmentation.flip:
        shifted[flipped] = shifted[flipped, :, :, ::-1]
    return shifted


def _whole_pixels(fraction: float, size: int) -> int:
    return int(fraction * size + 1e-9)  # because 0.29 * 100 is 28.999999999999996
