"""Labelled examples as every source gives them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

CLASSES = 10


@dataclass(frozen=True)
class Split:
    """inputs: pictures, (n, channels, height, width) uint8, or sequences of numbers,
    (n, length) int32. labels: (n,) uint8 or int32, from 0.
    """

    inputs: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, n: int) -> Split:
        return Split(self.inputs[:n], self.labels[:n])


@dataclass(frozen=True)
class Dataset:
    """name says in a few words which data it is; note, why it is not what was asked for.

    vocabulary: of sequences, how many numbers an Embedding must know: the highest possible + 1.
    """

    name: str
    train: Split
    test: Split
    note: str | None = None
    vocabulary: int | None = None

    def sha256(self) -> str:
        """The fingerprint of all inputs and labels, in order."""
        digest = hashlib.sha256()
        for split in (self.train, self.test):
            digest.update(split.inputs.tobytes())
            digest.update(split.labels.tobytes())
        return digest.hexdigest()
