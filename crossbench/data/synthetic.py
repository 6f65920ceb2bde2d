"""Make pictures and numbers by a formula, and examples for the proof.

Each class is a grating of its own direction, fineness and tint, at a random phase and contrast; a
second random grating, a random tint and noise are added. A small CNN learns the classes, and not by
the mean colour alone, but as slowly as those of real pictures: where pictures are learned at once,
the LeNet's SGD makes a leap, and rounding alone then decides the loss.

Numbers are standard normal, inputs and targets alike: there is nothing to learn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from .dataset import CLASSES, Dataset, Split
from .sources import (
    CIFAR10,
    IMDB,
    MNIST,
    NormalNumbers,
    Pictures,
    Source,
    Text,
    TinyShakespeare,
    TokenIds,
)

TRAIN, TEST = 50_000, 10_000  # pictures, as in CIFAR-10
LARGE_TRAIN, LARGE_TEST = 1_024, 128  # pictures of a Pictures source
NUMBERS_TRAIN, NUMBERS_TEST = 16_384, 1_024  # examples of a NormalNumbers source
TOKENS_TRAIN, TOKENS_TEST = 256, 32  # examples of a TokenIds source
CHUNK = 1_000  # pictures of 32 x 32 made at once, or fewer larger ones of the same memory
CIFAR_SHAPE, MNIST_SHAPE = (3, 32, 32), (1, 28, 28)
TEXT_VOCABULARY = 57  # different characters in Nietzsche's text
SHAKESPEARE_VOCABULARY = 65  # different characters in Shakespeare's text

Shape = tuple[int, int, int]
"""Channels, height and width; height and width are equal."""


def load_cifar10(seed: int, train: int = TRAIN, test: int = TEST) -> Dataset:
    """Return pictures in CIFAR-10's shapes; the same seed gives the same bytes."""
    return _make_dataset(f"synthetic (seed {seed})", [seed, 10], make_split, train, test)


def load_mnist(seed: int, train: int = 60_000, test: int = 10_000) -> Dataset:
    """Return pictures in MNIST's shapes: (n, 1, 28, 28) uint8 of 10 classes."""
    make = partial(make_split, shape=MNIST_SHAPE)
    name = f"synthetic, in MNIST's shapes (seed {seed})"
    return _make_dataset(name, [seed, 11], make, train, test)


def load_pictures(
    source: Pictures, seed: int, train: int = LARGE_TRAIN, test: int = LARGE_TEST
) -> Dataset:
    """Return pictures (n, 3, size, size) uint8 of the source's size and number of classes."""
    shape = (3, source.size, source.size)
    make = partial(make_split, shape=shape, classes=source.classes)
    name = f"pictures of {source.size} × {source.size} by formula (seed {seed})"
    return _make_dataset(name, [seed, 12], make, train, test)


def load_numbers(
    source: NormalNumbers, seed: int, train: int = NUMBERS_TRAIN, test: int = NUMBERS_TEST
) -> Dataset:
    """Return inputs (n, *shape) and targets (n, outputs), both float32."""
    make = partial(make_numbers, source)
    return _make_dataset(f"normal numbers (seed {seed})", [seed, 15], make, train, test)


def make_numbers(source: NormalNumbers, n: int, random: np.random.Generator) -> Split:
    """Return n inputs and n targets in the source's shapes, float32."""
    inputs = random.standard_normal((n, *source.shape), np.float32)
    return Split(inputs, random.standard_normal((n, source.outputs), np.float32))


def load_token_ids(
    source: TokenIds, seed: int, train: int = TOKENS_TRAIN, test: int = TOKENS_TEST
) -> Dataset:
    """Return inputs and labels (n, length) int32: the labels are the ids one place later."""
    make = partial(make_token_ids, source)
    return _make_dataset(f"token ids by Zipf's law (seed {seed})", [seed, 16], make, train, test)


def make_token_ids(
    source: TokenIds, n: int, random: np.random.Generator, vocabulary: int | None = None
) -> Split:
    """Return n inputs and labels (n, length) int32, drawn by Zipf's law."""
    token_ids = draw_zipf(vocabulary or source.vocabulary, (n, source.length + 1), random)
    return Split(token_ids[:, :-1].copy(), token_ids[:, 1:].copy())


def draw_zipf(words: int, shape: int | tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return ids below `words`, int32, by Zipf's law: k is drawn k + 1 times less often than 0."""
    cumulative = np.cumsum(1 / np.arange(1, words + 1))
    return np.searchsorted(cumulative, random.random(shape) * cumulative[-1]).astype(np.int32)


def _make_dataset(
    name: str,
    seed: list[int],
    make: Callable[[int, np.random.Generator], Split],
    train: int,
    test: int,
) -> Dataset:
    """Return `train` examples to train on and `test` to test on, each made from its own numbers."""
    train_random, test_random = np.random.default_rng(seed).spawn(2)
    return Dataset(name, make(train, train_random), make(test, test_random))


def make_split(
    n: int, random: np.random.Generator, shape: Shape = CIFAR_SHAPE, classes: int = CLASSES
) -> Split:
    """Return n pictures (n, *shape) uint8 of random classes, with their labels."""
    labels = random.integers(0, classes, n, dtype=np.uint8)
    inputs = np.empty((n, *shape), np.uint8)
    step = max(1, CHUNK * 32 * 32 // (shape[1] * shape[2]))
    for i in range(0, n, step):
        chunk = make_pictures(labels[i : i + step], random, shape, classes)
        inputs[i : i + step] = (chunk * 255 + 0.5).astype(np.uint8)
    return Split(inputs, labels)


def make_pictures(
    labels: np.ndarray,
    random: np.random.Generator,
    shape: Shape = CIFAR_SHAPE,
    classes: int = CLASSES,
) -> np.ndarray:
    """Return (n, *shape) float32 in (0, 1), one picture per label; at most 3 channels."""
    n, class_number = len(labels), labels.astype(np.float32)
    channels, size, _ = shape
    hue = class_number[:, None] * np.float32(2 * np.pi / classes) + np.array(
        [0, 2.1, 4.2], np.float32
    )
    random_tint = 0.1 * random.standard_normal((n, channels), np.float32)
    tint = 0.15 * np.sin(hue[:, :channels]) + random_tint
    phase, contrast = _uniform(random, n, (0, 2 * np.pi), (0.2, 0.4))
    angle = class_number * np.float32(np.pi / classes)
    grating = contrast * _gratings(size, angle, 2 + class_number % 3, phase)
    grating += 0.25 * _gratings(size, *_uniform(random, n, (0, np.pi), (1, 6), (0, 2 * np.pi)))
    noise = 0.3 * random.random((n, *shape), np.float32) - 0.15
    light = tint[:, :, None, None] + grating.transpose(2, 0, 1)[:, None] + noise
    return 1 / (1 + np.exp(-4 * light))  # clipping would make ties in a max-pool


def make_examples(
    source: Source, n: int, random: np.random.Generator, vocabulary: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return n inputs in the shape that the source's models take, and labels (n,) int64 from 0, or
    (n, length) for a source with one at each place, or targets (n, outputs) float32.

    Pictures are (n, channels, height, width) float32 in (0, 1), not rounded to 256 levels;
    sequences are (n, length) int32, with each id below the vocabulary equally likely. vocabulary:
    None for IMDB's words without bigrams, for 57 or 65 characters, or for the source's own.
    """
    match source:
        case CIFAR10():
            labels = random.integers(0, CLASSES, n)
            return make_pictures(labels, random), labels
        case MNIST():
            labels = random.integers(0, CLASSES, n)
            return make_pictures(labels, random, MNIST_SHAPE), labels
        case Pictures(size=size, classes=classes):
            labels = random.integers(0, classes, n)
            return make_pictures(labels, random, (3, size, size), classes), labels
        case IMDB(words=words, length=length):
            labels = random.integers(0, 2, n)
            return random.integers(0, vocabulary or words, (n, length), np.int32), labels
        case Text(length=length):
            characters = vocabulary or TEXT_VOCABULARY
            labels = random.integers(0, characters, n)
            return random.integers(0, characters, (n, length), np.int32), labels
        case TinyShakespeare(length=length):
            characters = vocabulary or SHAKESPEARE_VOCABULARY
            both = random.integers(0, characters, (2, n, length), np.int32)
            return both[0], both[1].astype(np.int64)
        case TokenIds():
            made = make_token_ids(source, n, random, vocabulary)
            return made.inputs, made.labels.astype(np.int64)
        case NormalNumbers():
            made = make_numbers(source, n, random)
            return made.inputs, made.labels
        case _:
            raise TypeError(f"{type(source).__name__} is not a source of data")


def _uniform(random: np.random.Generator, n: int, *ranges: tuple[float, float]) -> np.ndarray:
    """Return (ranges, n) float32: a row of n uniform random numbers for each range."""
    low, high = np.transpose(ranges)
    return random.uniform(low, high, (n, len(ranges))).astype(np.float32).T


def _gratings(size: int, angle: np.ndarray, waves: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """Return (size, size, n) sine waves in [-1, 1]; waves: periods across the picture."""
    y, x = np.mgrid[0:size, 0:size, 0:1][:2].astype(np.float32) / size
    across = x * np.cos(angle) + y * np.sin(angle)
    return np.sin(2 * np.pi * waves * across + phase)
