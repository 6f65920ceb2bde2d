"""Test the shifts and flips of pictures, against a plain loop over pixels."""

import time

import numpy as np
import pytest

from crossbench.data.augmentation import augment
from crossbench.data.sources import Augmentation


def random_pictures(n, channels=3, height=32, width=32, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, channels, height, width), np.uint8)


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
        (Augmentation(0.1, False), 1, 2),
        (Augmentation(0.0, True), 0, 0),
        (Augmentation(0.5, True), 8, 12),
    ],
)
def test_augment_does_what_a_plain_loop_does(augmentation, down, right):
    pictures = random_pictures(40, height=16, width=24)
    before = pictures.copy()
    augmented = augment(pictures, augmentation, np.random.default_rng(7))
    random = np.random.default_rng(7)
    draws = random.integers(-down, down + 1, 40), random.integers(-right, right + 1, 40)
    flipped = (random.random(40) < 0.5) & augmentation.flip
    np.testing.assert_array_equal(augmented, augment_by_pixel(pictures, *draws, flipped))
    assert augmented.dtype == np.uint8
    assert augmented.flags.c_contiguous
    np.testing.assert_array_equal(pictures, before)
    assert not np.shares_memory(augmented, pictures)


def test_a_shift_of_29_hundredths_of_100_pixels_is_29():
    pictures = np.zeros((2_000, 1, 100, 1), np.uint8)
    pictures[:, 0, 50] = 1
    augmented = augment(pictures, Augmentation(0.29, False), np.random.default_rng(0))
    rows = np.nonzero(augmented)[2]
    assert (rows.min(), rows.max()) == (50 - 29, 50 + 29)


def test_augment_is_fast():
    """It is part of the timed epoch. It takes 0.2 ms if nothing else runs."""
    pictures, took = random_pictures(32), []
    for seed in range(20):
        random = np.random.default_rng(seed)
        started = time.perf_counter()
        augment(pictures, Augmentation(0.1, True), random)
        took.append(time.perf_counter() - started)
    assert min(took) < 0.005
