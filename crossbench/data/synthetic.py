"""Make pictures, token ids and numbers by a formula, and examples for the proof.

Each class is a grating of its own direction, fineness and tint, at a random phase and contrast; a
second random grating, a random tint and noise are added. A small CNN learns the classes, and not by
the mean colour alone, but as slowly as those of real pictures: where pictures are learned at once,
the LeNet's SGD makes a leap, and rounding alone then decides the loss.

Numbers are standard normal, inputs and targets alike: there is nothing to learn. Those of a class
have means of their own. Token ids are drawn by Zipf's law, in each class with another id as the
most frequent one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from .dataset import CLASSES, Dataset, ExampleShapes, Split

TRAIN, TEST = 50_000, 10_000  # pictures, as in CIFAR-10
LARGE_TRAIN, LARGE_TEST = 1_024, 128  # pictures of 256 x 256, or as many others of the same memory
NUMBERS_TRAIN, NUMBERS_TEST = 16_384, 1_024
TOKENS_TRAIN, TOKENS_TEST = 256, 32  # examples of 1,024 token ids, or as many others of as many ids
FEWEST = 16
"""Examples of a model whose examples are larger still."""
MAX_BYTE_CLASSES = 256
LARGE_BYTES = 3 * 256 * 256  # of a picture of 256 x 256
CHUNK = 1_000  # pictures of 32 x 32 made at once, or fewer larger ones of the same memory
CIFAR10 = ExampleShapes((3, 32, 32), (), None, CLASSES)
MNIST = ExampleShapes((1, 28, 28), (), None, CLASSES)

Make = Callable[[ExampleShapes, int, np.random.Generator], Split]
"""Returns examples in a model's shapes, so many of them."""


def load_cifar10(
    seed: int, train: int = TRAIN, test: int = TEST, most: int | None = None
) -> Dataset:
    """Return pictures in CIFAR-10's shapes; see `load`."""
    make = partial(make_split, most=most)
    return _make_dataset(f"synthetic (seed {seed})", CIFAR10, [seed, 10], make, (train, test))


def load_mnist(
    seed: int, train: int = 60_000, test: int = 10_000, most: int | None = None
) -> Dataset:
    """Return pictures in MNIST's shapes; see `load`."""
    name, make = f"synthetic, in MNIST's shapes (seed {seed})", partial(make_split, most=most)
    return _make_dataset(name, MNIST, [seed, 11], make, (train, test))


def load(shapes: ExampleShapes, seed: int, most: int | None = None) -> Dataset:
    """Return examples in a model's shapes; the same seed gives the same bytes.

    most: how many pictures of each split are made; those behind them stay black.
    """
    make: Make
    if shapes.are_pictures:
        height, width = shapes.inputs[1:]
        name, stream = f"pictures of {height} × {width} by formula", 12
        make = partial(make_split, most=most)
    elif shapes.vocabulary is None:
        name, stream, make = "normal numbers", 15, _make_numbers
    else:
        name, stream, make = "token ids by Zipf's law", 16, _make_token_ids
    return _make_dataset(f"{name} (seed {seed})", shapes, [seed, stream], make, counts(shapes))


def _make_dataset(
    name: str, shapes: ExampleShapes, seed: list[int], make: Make, sizes: tuple[int, int]
) -> Dataset:
    """Return examples to train on and to test on, so many, each split made from its own random
    numbers.
    """
    train, test = (
        make(shapes, size, random)
        for size, random in zip(sizes, np.random.default_rng(seed).spawn(2), strict=True)
    )
    return Dataset(name, train, test, vocabulary=shapes.vocabulary)


def counts(shapes: ExampleShapes) -> tuple[int, int]:
    """Return the numbers of examples to train and to test on, fewer of large ones."""
    size = prod(shapes.inputs)
    if shapes.vocabulary is not None:
        most, large, share = (TRAIN, TEST), (TOKENS_TRAIN, TOKENS_TEST), 1_024 / size
    elif shapes.are_pictures:
        most, large, share = (TRAIN, TEST), (LARGE_TRAIN, LARGE_TEST), LARGE_BYTES / size
    else:
        most = (NUMBERS_TRAIN, NUMBERS_TEST)
        large, share = (LARGE_TRAIN, LARGE_TEST), LARGE_BYTES / 4 / size
    train, test = (
        min(count, max(FEWEST, int(of_large * share)))
        for count, of_large in zip(most, large, strict=True)
    )
    return train, test


def _make_numbers(shapes: ExampleShapes, n: int, random: np.random.Generator) -> Split:
    """Return n inputs float32, with targets float32 or labels."""
    inputs = random.standard_normal((n, *shapes.inputs), np.float32)
    if shapes.classes is None:
        return Split(inputs, random.standard_normal((n, *shapes.labels), np.float32))
    labels = _draw_labels(shapes, n, random)
    if not shapes.labels:
        means = np.random.default_rng(shapes.classes)  # the same to train and to test on
        inputs += means.standard_normal((shapes.classes, *shapes.inputs), np.float32)[labels]
    return Split(inputs, labels)


def _make_token_ids(shapes: ExampleShapes, n: int, random: np.random.Generator) -> Split:
    """Return n inputs int32, with labels: the ids one place later of a language, else classes."""
    (length,), vocabulary = shapes.inputs, shapes.vocabulary
    assert vocabulary
    if shapes.are_language and shapes.labels == shapes.inputs:
        token_ids = draw_zipf(vocabulary, (n, length + 1), random)
        return Split(token_ids[:, :-1].copy(), token_ids[:, 1:].copy())
    inputs = draw_zipf(vocabulary, (n, length), random)
    if shapes.classes is None:
        return Split(inputs, random.standard_normal((n, *shapes.labels), np.float32))
    labels = _draw_labels(shapes, n, random)
    if not shapes.labels:
        inputs = (inputs + labels[:, None].astype(np.int32)) % np.int32(vocabulary)
    return Split(inputs, labels)


def _draw_labels(shapes: ExampleShapes, n: int, random: np.random.Generator) -> np.ndarray:
    """Return n labels of equally likely classes, in uint8 where they fit."""
    assert shapes.classes
    dtype = np.uint8 if shapes.classes <= MAX_BYTE_CLASSES else np.int32
    return random.integers(0, shapes.classes, (n, *shapes.labels), dtype=dtype)


def draw_zipf(words: int, shape: int | tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return ids below `words`, int32, by Zipf's law: k is drawn k + 1 times less often than 0."""
    cumulative = np.cumsum(1 / np.arange(1, words + 1))
    return np.searchsorted(cumulative, random.random(shape) * cumulative[-1]).astype(np.int32)


def make_split(
    shapes: ExampleShapes, n: int, random: np.random.Generator, most: int | None = None
) -> Split:
    """Return n pictures uint8 of random classes, with their labels.

    most: how many pictures are made; those behind them stay black.
    """
    labels = _draw_labels(shapes, n, random)
    inputs = np.zeros((n, *shapes.inputs), np.uint8)  # which the kernel clears when written to
    step = max(1, CHUNK * 32 * 32 // prod(shapes.inputs[1:]))
    # a split of FEWEST is made whole: its test examples may all be used where one batch is an epoch
    made = n if most is None else min(n, max(most, FEWEST))
    for i in range(0, made, step):
        chunk = make_pictures(shapes, labels[i : i + step], random)
        inputs[i : i + step] = (chunk * 255 + 0.5).astype(np.uint8)
    return Split(inputs, labels)


def make_pictures(
    shapes: ExampleShapes, labels: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Return (n, channels, height, width) float32 in (0, 1), one picture per label; where each of
    its places has one, per that of the first place.
    """
    assert shapes.classes
    n, class_number = len(labels), labels.reshape(len(labels), -1)[:, 0].astype(np.float32)
    channels, *sides = shapes.inputs
    of_channel = np.float32(2.1) * np.arange(channels, dtype=np.float32)
    hue = class_number[:, None] * np.float32(2 * np.pi / shapes.classes) + of_channel
    random_tint = 0.1 * random.standard_normal((n, channels), np.float32)
    tint = 0.15 * np.sin(hue) + random_tint
    phase, contrast = _uniform(random, n, (0, 2 * np.pi), (0.2, 0.4))
    angle = class_number * np.float32(np.pi / shapes.classes)
    grating = contrast * _gratings(sides, angle, 2 + class_number % 3, phase)
    grating += 0.25 * _gratings(sides, *_uniform(random, n, (0, np.pi), (1, 6), (0, 2 * np.pi)))
    noise = 0.3 * random.random((n, *shapes.inputs), np.float32) - 0.15
    light = tint[:, :, None, None] + grating.transpose(2, 0, 1)[:, None] + noise
    return 1 / (1 + np.exp(-4 * light))  # clipping would make ties in a max-pool


def make_examples(
    shapes: ExampleShapes, n: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return n inputs in a model's shapes, and labels int64 from 0 or targets float32.

    Pictures are float32 in (0, 1), not rounded to 256 levels; each token id is equally likely.
    """
    if shapes.classes is None:
        made = (_make_numbers if shapes.vocabulary is None else _make_token_ids)(shapes, n, random)
        return made.inputs, made.labels
    if shapes.vocabulary is None and not shapes.are_pictures:
        made = _make_numbers(shapes, n, random)
        return made.inputs, made.labels.astype(np.int64)
    labels = random.integers(0, shapes.classes, (n, *shapes.labels))
    if shapes.vocabulary is None:
        return make_pictures(shapes, labels, random), labels
    return random.integers(0, shapes.vocabulary, (n, *shapes.inputs), np.int32), labels


def _uniform(random: np.random.Generator, n: int, *ranges: tuple[float, float]) -> np.ndarray:
    """Return (ranges, n) float32: a row of n uniform random numbers for each range."""
    low, high = np.transpose(ranges)
    return random.uniform(low, high, (n, len(ranges))).astype(np.float32).T


def _gratings(
    sides: list[int], angle: np.ndarray, waves: np.ndarray, phase: np.ndarray
) -> np.ndarray:
    """Return (height, width, n) sine waves in [-1, 1]; waves: periods across the picture."""
    height, width = sides
    y, x = np.mgrid[0:height, 0:width, 0:1][:2].astype(np.float32)
    y, x = y / height, x / width
    across = x * np.cos(angle) + y * np.sin(angle)
    return np.sin(2 * np.pi * waves * across + phase)
