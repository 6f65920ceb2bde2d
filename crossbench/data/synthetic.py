"""Pictures made by a formula, in the shapes of real ones: for where those cannot be had.

Each class is a grating of its own direction, fineness and tint, at a random phase and contrast;
over it lies another grating at random, a random tint, and noise. A small CNN learns it, and not by
the mean colour alone, but as slowly as real pictures: what is learned at once makes the LeNet's SGD
leap, and then rounding alone decides over the loss.
"""

from __future__ import annotations

import numpy as np

from .dataset import CLASSES, Dataset, Split
from .sources import CIFAR10, IMDB, MNIST, Pictures, Source, Text

TRAIN, TEST = 50_000, 10_000  # as many as CIFAR-10 has
LARGE_TRAIN, LARGE_TEST = 1_024, 128  # pictures of any size
CHUNK = 1_000  # pictures of 32 by 32, or as many larger ones as take the same memory
CIFAR_SHAPE, MNIST_SHAPE = (3, 32, 32), (1, 28, 28)
TEXT_VOCABULARY = 57  # of Nietzsche's text

Shape = tuple[int, int, int]
"""Channels, height and width, which are the same."""


def load(seed: int, train: int = TRAIN, test: int = TEST) -> Dataset:
    """CIFAR-10's stand-in of that seed: the same bytes for the same seed."""
    train_random, test_random = np.random.default_rng([seed, 10]).spawn(2)
    return Dataset(f"synthetic (seed {seed})", split(train, train_random), split(test, test_random))


def digits(seed: int, train: int = 60_000, test: int = 10_000) -> Dataset:
    """MNIST's stand-in: pictures (n, 1, 28, 28) uint8 of 10 classes."""
    train_random, test_random = np.random.default_rng([seed, 11]).spawn(2)
    return Dataset(
        f"synthetic, in MNIST's shapes (seed {seed})",
        split(train, train_random, MNIST_SHAPE),
        split(test, test_random, MNIST_SHAPE),
    )


def large(source: Pictures, seed: int, train: int = LARGE_TRAIN, test: int = LARGE_TEST) -> Dataset:
    """Pictures (n, 3, size, size) uint8 of `classes` classes."""
    train_random, test_random = np.random.default_rng([seed, 12]).spawn(2)
    shape = (3, source.size, source.size)
    return Dataset(
        f"pictures of {source.size} × {source.size} by formula (seed {seed})",
        split(train, train_random, shape, source.classes),
        split(test, test_random, shape, source.classes),
    )


def split(
    n: int, random: np.random.Generator, shape: Shape = CIFAR_SHAPE, classes: int = CLASSES
) -> Split:
    """Pictures (n, *shape) uint8 of random classes."""
    labels = random.integers(0, classes, n, dtype=np.uint8)
    inputs = np.empty((n, *shape), np.uint8)
    step = max(1, CHUNK * 32 * 32 // (shape[1] * shape[2]))
    for i in range(0, n, step):
        chunk = pictures(labels[i : i + step], random, shape, classes)
        inputs[i : i + step] = (chunk * 255 + 0.5).astype(np.uint8)
    return Split(inputs, labels)


def pictures(
    labels: np.ndarray,
    random: np.random.Generator,
    shape: Shape = CIFAR_SHAPE,
    classes: int = CLASSES,
) -> np.ndarray:
    """(n, *shape) float32 in (0, 1), one picture a label; at most 3 channels."""
    n, kind = len(labels), labels.astype(np.float32)
    channels, size, _ = shape
    hue = kind[:, None] * np.float32(2 * np.pi / classes) + np.array([0, 2.1, 4.2], np.float32)
    random_tint = 0.1 * random.standard_normal((n, channels), np.float32)
    tint = 0.15 * np.sin(hue[:, :channels]) + random_tint
    phase, contrast = _uniform(random, n, (0, 2 * np.pi), (0.2, 0.4))
    angle = kind * np.float32(np.pi / classes)
    grating = contrast * _gratings(size, angle, 2 + kind % 3, phase)
    grating += 0.25 * _gratings(size, *_uniform(random, n, (0, np.pi), (1, 6), (0, 2 * np.pi)))
    noise = 0.3 * random.random((n, *shape), np.float32) - 0.15
    light = tint[:, :, None, None] + grating.transpose(2, 0, 1)[:, None] + noise
    return 1 / (1 + np.exp(-4 * light))  # not cut off: equal neighbours would be ties in a max-pool


def examples(
    source: Source, n: int, random: np.random.Generator, vocabulary: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A few inputs in the shape that a model of this source sees, and labels (n,) int64 from 0.

    Pictures are (n, channels, height, width) float32 in (0, 1), as fine as float32 is; sequences
    are (n, length) int32, each number below the vocabulary equally often. vocabulary: None for the
    words without bigrams, or for 57 characters.
    """
    match source:
        case CIFAR10():
            labels = random.integers(0, CLASSES, n)
            return pictures(labels, random), labels
        case MNIST():
            labels = random.integers(0, CLASSES, n)
            return pictures(labels, random, MNIST_SHAPE), labels
        case Pictures(size=size, classes=classes):
            labels = random.integers(0, classes, n)
            return pictures(labels, random, (3, size, size), classes), labels
        case IMDB(words=words, length=length):
            labels = random.integers(0, 2, n)
            return random.integers(0, vocabulary or words, (n, length), np.int32), labels
        case Text(length=length):
            characters = vocabulary or TEXT_VOCABULARY
            labels = random.integers(0, characters, n)
            return random.integers(0, characters, (n, length), np.int32), labels
        case _:
            raise TypeError(f"no examples are made for {type(source).__name__}")


def _uniform(random: np.random.Generator, n: int, *ranges: tuple[float, float]) -> np.ndarray:
    """A row of n float32 numbers for each range."""
    low, high = np.transpose(ranges)
    return random.uniform(low, high, (n, len(ranges))).astype(np.float32).T


def _gratings(size: int, angle: np.ndarray, waves: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """(size, size, n) sine waves in [-1, 1]; waves: across the picture."""
    y, x = np.mgrid[0:size, 0:size, 0:1][:2].astype(np.float32) / size
    across = x * np.cos(angle) + y * np.sin(angle)
    return np.sin(2 * np.pi * waves * across + phase)
