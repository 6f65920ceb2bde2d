"""Test the shifts and flips of pictures, against a plain loop over pixels."""

from timeit import repeat

import numpy as np
import pytest

from crossbench.data.augmentation import augment
from crossbench.data.sources import Augmentation


def augment_by_pixel(pictures, down, right, flipped):
    """Take each pixel from where the shift moved it, or from the nearest edge."""
    n, _, height, width = pictures.shape
    out = np.empty_like(pictures)
    for i in range(n):
        for y in range(height):
            for x in range(width):
                into = width - 1 - x if flipped[i] else x
                from_y = min(max(y - down[i], 0), height - 1)
                from_x = min(max(x - right[i], 0), width - 1)
                out[i, :, y, into] = pictures[i, :, from_y, from_x]
    return out


@pytest.mark.parametrize(
    ("augmentation", "down", "right"),
    [
        (Augmentation(0.1, False), 10, 2),
        (Augmentation(0.0, True), 0, 0),
        (Augmentation(0.29, True), 29, 5),  # although 0.29 * 100 is less than 29
    ],
)
def test_augment_does_what_a_plain_loop_does(augmentation, down, right):
    pictures = np.random.default_rng(0).integers(0, 256, (20, 3, 100, 20), np.uint8)
    before = pictures.copy()
    augmented = augment(pictures, augmentation, np.random.default_rng(7))
    random = np.random.default_rng(7)
    draws = random.integers(-down, down + 1, 20), random.integers(-right, right + 1, 20)
    flipped = (random.random(20) < 0.5) & augmentation.flip
    np.testing.assert_array_equal(augmented, augment_by_pixel(pictures, *draws, flipped))
    assert augmented.dtype == np.uint8
    assert augmented.flags.c_contiguous
    np.testing.assert_array_equal(pictures, before)
    assert not np.shares_memory(augmented, pictures)


def test_augment_is_fast():
    """It is part of the timed epoch. It takes 0.2 ms if nothing else runs."""
    pictures, random = np.zeros((32, 3, 32, 32), np.uint8), np.random.default_rng(0)
    took = repeat(lambda: augment(pictures, Augmentation(0.1, True), random), number=1, repeat=20)
    assert min(took) < 0.005
