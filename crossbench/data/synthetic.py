"""Pictures made by a formula, in CIFAR-10's shapes: for where the real ones cannot be had.

Each class is a grating of its own direction, fineness and tint, at a random phase and contrast
and under noise: learnable by a small CNN, and not by the mean colour alone.
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
    """(n, 3, 32, 32) float32 in [0, 1], one picture a label."""
    n, kind = len(labels), labels.astype(np.float32)
    angle = kind * np.float32(np.pi / CLASSES)
    waves = 2 + kind % 3  # across the picture
    phase, contrast = random.uniform((0, 0.2), (2 * np.pi, 0.4), (n, 2)).astype(np.float32).T
    y, x = np.mgrid[0:32, 0:32].astype(np.float32) / 32
    across = np.multiply.outer(np.cos(angle), x) + np.multiply.outer(np.sin(angle), y)
    grating = np.sin(2 * np.pi * waves[:, None, None] * across + phase[:, None, None])
    hue = kind[:, None] * np.float32(2 * np.pi / CLASSES) + np.array([0, 2.1, 4.2], np.float32)
    tint = 0.5 + 0.15 * np.sin(hue)
    noise = 0.3 * random.random((n, 3, 32, 32), np.float32) - 0.15
    image = tint[:, :, None, None] + (contrast[:, None, None] * grating)[:, None] + noise
    return np.clip(image, 0, 1)
