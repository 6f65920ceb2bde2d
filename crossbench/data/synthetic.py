"""Pictures made by a formula, in CIFAR-10's shapes: for where the real ones cannot be had.

Each class is a grating of its own direction, fineness and tint, at a random phase and contrast;
over it lies another grating at random, a random tint, and noise. A small CNN learns it, and not by
the mean colour alone, but as slowly as real pictures: what is learned at once makes the LeNet's SGD
leap, and then rounding alone decides over the loss.
"""

from __future__ import annotations

import numpy as np

from .dataset import CLASSES, Dataset, Split

TRAIN, TEST = 50_000, 10_000  # as many as CIFAR-10 has
CHUNK = 1_000


def load(seed: int, train: int = TRAIN, test: int = TEST) -> Dataset:
    """The data set of that seed: the same bytes for the same seed."""
    train_random, test_random = np.random.default_rng([seed, 10]).spawn(2)
    return Dataset(f"synthetic (seed {seed})", split(train, train_random), split(test, test_random))


def split(size: int, random: np.random.Generator) -> Split:
    labels = random.integers(0, CLASSES, size, dtype=np.uint8)
    chunks = [pictures(labels[i : i + CHUNK], random) for i in range(0, size, CHUNK)]
    images = np.concatenate([(chunk * 255 + 0.5).astype(np.uint8) for chunk in chunks])
    return Split(images, labels)


def pictures(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """(n, 3, 32, 32) float32 in (0, 1), one picture a label."""
    n, kind = len(labels), labels.astype(np.float32)
    hue = kind[:, None] * np.float32(2 * np.pi / CLASSES) + np.array([0, 2.1, 4.2], np.float32)
    tint = 0.15 * np.sin(hue) + 0.1 * random.standard_normal((n, 3), np.float32)
    phase, contrast = _uniform(random, n, (0, 2 * np.pi), (0.2, 0.4))
    grating = contrast * _gratings(kind * np.float32(np.pi / CLASSES), 2 + kind % 3, phase)
    grating += 0.25 * _gratings(*_uniform(random, n, (0, np.pi), (1, 6), (0, 2 * np.pi)))
    noise = 0.3 * random.random((n, 3, 32, 32), np.float32) - 0.15
    light = tint[:, :, None, None] + grating.transpose(2, 0, 1)[:, None] + noise
    return 1 / (1 + np.exp(-4 * light))  # not cut off: equal neighbours would be ties in a max-pool


def _uniform(random: np.random.Generator, n: int, *ranges: tuple[float, float]) -> np.ndarray:
    """A row of n float32 numbers for each range."""
    low, high = np.transpose(ranges)
    return random.uniform(low, high, (n, len(ranges))).astype(np.float32).T


def _gratings(angle: np.ndarray, waves: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """(32, 32, n) sine waves in [-1, 1]; waves: across the picture."""
    y, x = np.mgrid[0:32, 0:32, 0:1][:2].astype(np.float32) / 32
    across = x * np.cos(angle) + y * np.sin(angle)
    return np.sin(2 * np.pi * waves * across + phase)
