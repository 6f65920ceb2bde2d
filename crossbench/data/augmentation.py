"""What is done to the pictures of a batch anew in each epoch."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .sources import Augmentation


def augment(
    pictures: np.ndarray, augmentation: Augmentation, random: np.random.Generator
) -> np.ndarray:
    """Shift each picture, and flip one in two, as the augmentation says.

    pictures: (n, channels, height, width) uint8, which stay as they are. Down, right and flip are
    drawn in this order, n of each, whatever the augmentation: so the draws of one batch never
    depend on those of another kind.
    """
    n, _, height, width = pictures.shape
    most_down, most_right = (_pixels(augmentation.shift, size) for size in (height, width))
    down = random.integers(-most_down, most_down + 1, n)
    right = random.integers(-most_right, most_right + 1, n)
    flipped = random.random(n) < 0.5
    # the shifted picture is a window on the one with its edge repeated around it
    margin = ((0, 0), (0, 0), (most_down, most_down), (most_right, most_right))
    wide = np.pad(pictures, margin, mode="edge")
    windows = sliding_window_view(wide, (height, width), axis=(2, 3))
    shifted = windows[np.arange(n), :, most_down - down, most_right - right]
    if augmentation.flip:
        shifted[flipped] = shifted[flipped, :, :, ::-1]
    return shifted


def _pixels(fraction: float, size: int) -> int:
    return int(fraction * size + 1e-9)  # 0.29 * 100 is 28.999999999999996
