"""Describe what a worker process carries out, and the arrays that it maps into its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..data import Dataset, Split
from ..inputs.names import FLOAT32
from ..results.epochs import TRAIN, Task
from ..workload import Batches, Job
from .batches import AugmentedBatches, array_batches


@dataclass(frozen=True)
class Assignment:
    """Describe what a worker carries out.

    data: the directory that save_arrays wrote to. batches: how many its epochs take, the first
    ones. gpu: its index among the visible GPUs; None on the CPU.
    """

    framework: str
    job: Job
    data: Path
    batch_size: int
    batches: int
    seed: int
    gpu: int | None = None
    task: Task = TRAIN

    @property
    def without_batch(self) -> Assignment:
        """Return what depends on neither the task nor the batch size, such as the peak."""
        return replace(self, task=TRAIN, batch_size=1, batches=1)

    def of_first(self, batches: int) -> Assignment:
        """Return the assignment of so many of the batches at most."""
        return replace(self, batches=min(batches, self.batches))

    @property
    def in_float32(self) -> Assignment:
        """Return the assignment in float32, by which the mathematics is proved."""
        return replace(self, job=replace(self.job, compute=FLOAT32))


def save_arrays(dataset: Dataset, directory: Path) -> None:
    """Write the data once for all workers, which map it into their memory."""
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        np.save(directory / f"{name}_inputs.npy", split.inputs)
        np.save(directory / f"{name}_labels.npy", split.labels)


def load_split(assignment: Assignment, name: str) -> Split:
    """Return the "train" or "test" examples, mapped from the files of save_arrays."""
    inputs, labels = (
        np.load(assignment.data / f"{name}_{part}.npy", mmap_mode="r")
        for part in ("inputs", "labels")
    )
    return Split(inputs, labels)


def epoch_batches(assignment: Assignment) -> Batches:
    """Return the batches of an epoch: prepared arrays, or augmented in each epoch."""
    train, augmentation = load_split(assignment, "train"), assignment.job.model.data.augmentation
    if augmentation is None:
        return array_batches(train, assignment.batch_size, assignment.batches)
    return AugmentedBatches(
        train, assignment.batch_size, assignment.batches, augmentation, assignment.seed
    )
