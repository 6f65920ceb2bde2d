"""Hold the batches of an epoch: prepared arrays, or examples that are made batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from ..data import Split
from ..data.augmentation import augment, draw_blocks, epoch_random
from ..data.sources import Augmentation, RandomPositions
from ..models import Dropout, Model
from ..workload import Batch, Batches


@dataclass(frozen=True)
class ArrayBatches:
    """Hold all batches of an epoch as arrays.

    inputs: (steps, batch, *input_shape). labels: (steps, batch, *label_shape). masks: for each
    dropout (steps, batch, *shape), bool. See Batch.
    """

    streamed: ClassVar[bool] = False

    inputs: np.ndarray
    labels: np.ndarray
    masks: Mapping[str, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def batch_size(self) -> int:
        return self.labels.shape[1]

    def __iter__(self) -> Iterator[Batch]:
        for step in range(len(self)):
            masks = self.masks and {name: array[step] for name, array in self.masks.items()}
            yield Batch(self.inputs[step], self.labels[step], masks)

    def some(self, steps: slice) -> Self:
        """Return some steps of the epoch; arrays are not copied."""
        masks = self.masks and {name: array[steps] for name, array in self.masks.items()}
        return replace(self, inputs=self.inputs[steps], labels=self.labels[steps], masks=masks)


class StreamedBatches(ArrayBatches):
    """Hold the same arrays; the workload moves each batch to the device right before its step."""

    streamed: ClassVar[bool] = True


@dataclass(frozen=True)
class BatchList:
    """Hold a few batches of an epoch, in its order."""

    batches: Sequence[Batch]
    streamed: bool

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def batch_size(self) -> int:
        return len(self.batches[0].labels)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)


@dataclass
class AugmentedBatches:
    """Make each batch right before its step: augment its pictures, or draw its blocks of a text.

    The random numbers follow from the seed and the epoch, so every framework gets the same batches.
    """

    streamed: ClassVar[bool] = True

    examples: Split
    batch_size: int
    steps: int
    augmentation: Augmentation | RandomPositions
    seed: int
    epoch: int = 0

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        random = epoch_random(self.seed, self.epoch)
        for step in range(self.steps):
            made = self._make(step, random)
            yield Batch(as_inputs(made.inputs), as_labels(made.labels))

    def _make(self, step: int, random: np.random.Generator) -> Split:
        """Return the examples of a step."""
        if isinstance(self.augmentation, RandomPositions):
            return draw_blocks(self.examples, self.batch_size, random)
        part = slice(step * self.batch_size, (step + 1) * self.batch_size)
        pictures = augment(self.examples.inputs[part], self.augmentation, random)
        return Split(pictures, self.examples.labels[part])


def array_batches(split: Split, batch_size: int, steps: int) -> ArrayBatches:
    """Return the first steps * batch_size examples of a split, in its order."""
    used = steps * batch_size
    inputs, labels = as_inputs(split.inputs[:used]), as_labels(split.labels[:used])
    return ArrayBatches(
        inputs.reshape(steps, batch_size, *inputs.shape[1:]),
        labels.reshape(steps, batch_size, *labels.shape[1:]),
    )


def cut(batches: Batches, steps: int) -> Batches:
    """Return the first steps of an epoch; arrays are not copied."""
    if isinstance(batches, AugmentedBatches):
        return replace(batches, steps=steps)
    assert isinstance(batches, ArrayBatches)
    return batches.some(slice(steps))


def draw_masks(
    model: Model, steps: int, batch_size: int, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return the masks of each dropout for so many steps, as ArrayBatches has them."""
    return {
        named.name: random.random((steps, batch_size, *named.input_shape)) >= named.layer.rate
        for named in model.all_layers()
        if isinstance(named.layer, Dropout)
    }


def as_inputs(examples: np.ndarray) -> np.ndarray:
    """Return uint8 pictures as float32 in [0, 1], and other arrays unchanged."""
    return examples / np.float32(255) if examples.dtype == np.uint8 else np.array(examples)


def as_labels(labels: np.ndarray) -> np.ndarray:
    """Return classes as int64, and targets unchanged."""
    return np.array(labels) if labels.dtype.kind == "f" else labels.astype(np.int64)
