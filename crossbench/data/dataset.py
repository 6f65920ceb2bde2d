"""Define the data set that every source returns: labelled examples to train and to test on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

CLASSES = 10  # of CIFAR-10 and MNIST


@dataclass(frozen=True)
class ExampleShapes:
    """Describe the examples that a model takes, without the axis of a batch.

    inputs: shape of an input. labels: that of a label: () for a class, (L,) for one at each place
    of a sequence, (H, W) of a picture, that of the numbers to predict. vocabulary: number of token
    ids; None for pictures and numbers. classes: None for numbers to predict.
    """

    inputs: tuple[int, ...]
    labels: tuple[int, ...]
    vocabulary: int | None
    classes: int | None

    @property
    def are_pictures(self) -> bool:
        """Return whether the inputs are (channels, height, width) with classes."""
        return self.vocabulary is None and self.classes is not None and len(self.inputs) == 3

    @property
    def are_language(self) -> bool:
        """Return whether the labels are token ids."""
        return self.vocabulary is not None and self.vocabulary == self.classes


@dataclass(frozen=True)
class Split:
    """Hold the examples to train on, or those to test on.

    inputs: pictures (n, channels, height, width) uint8, sequences of token ids (n, length) int32,
    or numbers (n, *shape) float32. labels: classes (n,) uint8 or int32, from 0, or one for each
    place of a sequence (n, length) int32, or targets (n, outputs) float32.
    """

    inputs: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, n: int) -> Split:
        """Return the first n examples, or all if there are fewer."""
        return Split(self.inputs[:n], self.labels[:n])


@dataclass(frozen=True)
class Dataset:
    """Hold a data set: its examples to train and to test on, and its name in a few words.

    note: why it is not the data that was asked for. vocabulary: the number of token ids of
    sequences, the highest possible + 1; None for pictures and numbers.
    """

    name: str
    train: Split
    test: Split
    note: str | None = None
    vocabulary: int | None = None

    def sha256(self) -> str:
        """Return the SHA-256 digest of all inputs and labels, in order."""
        digest = hashlib.sha256()
        for split in (self.train, self.test):
            digest.update(split.inputs.tobytes())
            digest.update(split.labels.tobytes())
        return digest.hexdigest()
