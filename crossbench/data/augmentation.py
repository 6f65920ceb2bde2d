"""Shift and flip the pictures of a batch, or draw the blocks of a text, anew in each epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .dataset import Split
from .sources import Augmentation

STREAM = 66
"""Number that tells the random numbers of an epoch from others of the same seed."""


def epoch_random(seed: int, epoch: int) -> np.random.Generator:
    """Return the generator of the random numbers of an epoch, counted from 0."""
    return np.random.default_rng([seed, STREAM, epoch])


@dataclass(frozen=True)
class Changes:
    """Holds how each picture of a batch is changed: the pixels that it is shifted down and to the
    right, and whether it is flipped.
    """

    down: np.ndarray
    right: np.ndarray
    flipped: np.ndarray


def draw_changes(
    n: int, size: tuple[int, int], augmentation: Augmentation, random: np.random.Generator
) -> Changes:
    """Draw the changes of n pictures of a size (height, width).

    The random numbers are drawn in a fixed order (n shifts down, n shifts right, n flips), even
    those that the augmentation does not use: so the shifts are the same with and without flips.
    """
    max_down, max_right = margins(augmentation, size)
    down = random.integers(-max_down, max_down + 1, n)
    right = random.integers(-max_right, max_right + 1, n)
    flipped = random.random(n) < 0.5
    return Changes(down, right, flipped if augmentation.flip else np.zeros(n, bool))


def augment(
    pictures: np.ndarray, augmentation: Augmentation, random: np.random.Generator
) -> np.ndarray:
    """Return a copy with each picture shifted and one in two flipped, as the augmentation says.

    pictures: (n, channels, height, width) uint8.
    """
    n, (height, width) = len(pictures), pictures.shape[2:]
    changes = draw_changes(n, (height, width), augmentation, random)
    max_down, max_right = margins(augmentation, (height, width))
    # a shifted picture is a window on the picture padded with its edges: no loop over pictures
    margin = ((0, 0), (0, 0), (max_down, max_down), (max_right, max_right))
    padded = np.pad(pictures, margin, mode="edge")
    windows = sliding_window_view(padded, (height, width), axis=(2, 3))
    shifted = windows[np.arange(n), :, max_down - changes.down, max_right - changes.right]
    if augmentation.flip:
        shifted[changes.flipped] = shifted[changes.flipped, :, :, ::-1]
    return shifted


def draw_blocks(split: Split, n: int, random: np.random.Generator) -> Split:
    """Return n blocks that begin at random positions of the text that a split was made from."""
    tokens = split.inputs.reshape(-1)
    places = draw_starts(split, n, random)[:, None] + np.arange(split.inputs.shape[1])
    return Split(tokens[places], tokens[places + 1])


def draw_starts(split: Split, n: int, random: np.random.Generator) -> np.ndarray:
    """Return the positions, counted from 0, at which n blocks begin."""
    return random.integers(0, split.inputs.size - split.inputs.shape[1], n)


def margins(augmentation: Augmentation, size: tuple[int, int]) -> tuple[int, int]:
    """Return the most pixels that a picture of a size (height, width) is shifted up or down, and
    left or right.
    """
    height, width = size
    return _whole_pixels(augmentation.shift, height), _whole_pixels(augmentation.shift, width)


def _whole_pixels(fraction: float, size: int) -> int:
    return int(fraction * size + 1e-9)  # because 0.29 * 100 is 28.999999999999996
