"""An epoch's batches: arrays that are there before, or pictures augmented when their turn comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..data import Split
from ..data.augmentation import augment
from ..data.sources import Augmentation
from ..workload import Batch


@dataclass(frozen=True)
class ArrayBatches:
    """inputs: (steps, batch, *input_shape); labels: (steps, batch), int64; kept: for each dropout
    (steps, batch, *shape), bool. See Batch.
    """

    streamed: ClassVar[bool] = False

    inputs: np.ndarray
    labels: np.ndarray
    kept: Mapping[str, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Batch]:
        for step in range(len(self)):
            kept = self.kept and {name: array[step] for name, array in self.kept.items()}
            yield Batch(self.inputs[step], self.labels[step], kept)


class StreamedBatches(ArrayBatches):
    """The same, but each is brought to the device when its turn comes."""

    streamed: ClassVar[bool] = True


@dataclass
class AugmentedBatches:
    """Each batch is made from its pictures when its turn comes; the draws are those of the seed and
    the epoch, so that every framework gets the same pictures.
    """

    streamed: ClassVar[bool] = True

    pictures: Split
    batch_size: int
    steps: int
    augmentation: Augmentation
    seed: int
    epoch: int = 0

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        random = np.random.default_rng([self.seed, 66, self.epoch])
        for start in range(0, self.steps * self.batch_size, self.batch_size):
            part = slice(start, start + self.batch_size)
            pictures = augment(self.pictures.inputs[part], self.augmentation, random)
            yield Batch(as_inputs(pictures), self.pictures.labels[part].astype(np.int64))


def array_batches(split: Split, batch_size: int, steps: int) -> ArrayBatches:
    """The first examples of a split, in its order."""
    used = steps * batch_size
    inputs = as_inputs(split.inputs[:used])
    return ArrayBatches(
        inputs.reshape(steps, batch_size, *inputs.shape[1:]),
        split.labels[:used].astype(np.int64).reshape(steps, batch_size),
    )


def as_inputs(examples: np.ndarray) -> np.ndarray:
    """Pictures from uint8 to float32 in [0, 1]; numbers as they are."""
    return examples / np.float32(255) if examples.dtype == np.uint8 else np.array(examples)
