"""The worker process: one framework on one device, doing what the parent asks, one thing at a time.

Requests and replies are pickled on the standard input and output. What a framework prints goes
to the standard error.
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .. import adapters
from ..data import Dataset, Split
from ..results.records import Epoch, Parity, Peak, Trained
from ..workload import Batches, Job, Unavailable, Workload
from . import parity, usage
from .batches import AugmentedBatches, array_batches, as_inputs

MATRIX = {"cpu": 2048, "gpu": 8192}
"""Rows and columns of the matrices of the peak: 0.02 and 1.1 TFLOP a product."""
COPY_BYTES = 2**28
"""Of the copy: larger than any cache."""


@dataclass(frozen=True)
class Task:
    """What a worker is for.

    data: the directory of the arrays that save_arrays wrote. batches: of an epoch.
    """

    framework: str
    job: Job
    data: Path
    batch_size: int
    batches: int
    seed: int


@dataclass(frozen=True)
class Reply:
    """value, or, where the request failed, error (one line) and its traceback.

    unavailable: the framework cannot be had; else something went wrong in it.
    """

    value: Any = None
    error: str | None = None
    traceback: str | None = None
    unavailable: bool = False


@dataclass(frozen=True)
class Started:
    details: dict[str, str]
    threads: int | None


@dataclass(frozen=True)
class Trail:
    """What a process that has trained leaves to be read: bytes, and CPUs."""

    peak_memory: int
    cpus_allowed: int | None


def save_arrays(dataset: Dataset, directory: Path) -> None:
    """Write the data once for all workers, who map it into their memory."""
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        np.save(directory / f"{name}_inputs.npy", split.inputs)
        np.save(directory / f"{name}_labels.npy", split.labels)


class Worker:
    """The requests that a worker answers: its public methods, by name."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.adapter = adapters.get(task.framework)

    def to_install(self) -> str | None:
        return self.adapter.to_install(self.task.job.device)

    def install(self) -> None:
        self.adapter.install(self.task.job.device)

    def parity(self, expected: parity.Expected) -> Parity:
        return parity.prove(self.adapter.build, self.task.job, expected)

    def start(self) -> Started:
        """Build the workload and bring the data to the device."""
        self.workload = self.adapter.build(self.task.job)
        self.initial = self.task.job.model.initial_weights(self.task.seed)
        self.workload.load_weights(self.initial)
        self.batches = self._batches()
        self.workload.place(self.batches)
        gc.collect()
        gc.freeze()  # what is there stays: to look through it before every epoch takes 0.1 s
        return Started(self.workload.details(), self.workload.threads())

    def epoch(self, number: int, epoch: int) -> Epoch:
        """The round's first epoch, or a further one: both begin with the initial weights."""
        if epoch == 0:
            usage.reset_peak_resident()
        if epoch <= 1:
            self.workload.load_weights(self.initial)
        self._draw(max(0, epoch - 1))  # the cold one and the first steady one begin alike
        return timed_epoch(self.workload, self.task.job.device, number, epoch)

    def trail(self) -> Trail:
        peak = self.workload.peak_memory()
        return Trail(usage.peak_resident() if peak is None else peak, usage.cpus_allowed())

    def train_on(self, number: int) -> Trained:
        """One epoch more towards an accuracy, the first, 0, from the initial weights."""
        if number == 0:
            self.workload.load_weights(self.initial)
        self._draw(number)
        epoch = timed_epoch(self.workload, self.task.job.device, 1, 0)
        return Trained(epoch.wall_seconds, epoch.cpu_seconds, self.test_accuracy())

    def peak(self) -> Peak:
        """What the framework reaches without a model: the best of several, after a first one."""
        size = MATRIX[self.task.job.device]
        product = self.workload.matrix_product(size)
        copy = self.workload.copy(COPY_BYTES)
        return Peak(
            2 * size**3 / best_seconds(product) / 1e9, 2 * COPY_BYTES / best_seconds(copy) / 1e9
        )

    def allocated(self) -> int | None:
        return self.workload.allocated()

    def test_accuracy(self) -> float:
        """Of the weights as they are, as a fraction."""
        test, size = self._split("test"), self.task.batch_size
        predictions, right = self.task.job.model.loss.predictions, 0
        for i in range(0, len(test), size):
            logits = self.workload.predict(as_inputs(test.inputs[i : i + size]))
            right += int((predictions(logits) == test.labels[i : i + size]).sum())
        return right / len(test)

    def _batches(self) -> Batches:
        task, split = self.task, self._split("train")
        if task.job.model.data.augmentation is None:
            return array_batches(split, task.batch_size, task.batches)
        augmentation = task.job.model.data.augmentation
        return AugmentedBatches(split, task.batch_size, task.batches, augmentation, task.seed)

    def _draw(self, epoch: int) -> None:
        """Of the augmentation, for that epoch after the initial weights."""
        if isinstance(self.batches, AugmentedBatches):
            self.batches.epoch = epoch

    def _split(self, name: str) -> Split:
        inputs, labels = (
            np.load(self.task.data / f"{name}_{part}.npy", mmap_mode="r")
            for part in ("inputs", "labels")
        )
        return Split(inputs, labels)


def best_seconds(work: Callable[[], None]) -> float:
    """The shortest of the calls of half a second, three at least, after one that warms up."""
    work()
    seconds: list[float] = []
    while len(seconds) < 3 or sum(seconds) < 0.5:
        clock = usage.Clock.start()
        work()
        seconds.append(clock.seconds()[0])
    return min(seconds)


def timed_epoch(workload: Workload, device: str, number: int, epoch: int) -> Epoch:
    """The one place where an epoch is timed."""
    gc.collect()
    before = usage.Counters.read(device)
    clock = usage.Clock.start()
    losses = workload.train_epoch()
    wall, cpu = clock.seconds()
    surroundings = before.until(usage.Counters.read(device))
    finite = [float(loss) if math.isfinite(loss) else None for loss in losses]
    figures = workload.epoch_figures()
    return Epoch(number, epoch, clock.wall, wall, cpu, finite, figures, surroundings)


def answer(worker: Worker, request: tuple[str, tuple[Any, ...]]) -> Reply:
    name, arguments = request
    try:
        return Reply(getattr(worker, name)(*arguments))
    except Unavailable as reason:
        return Reply(error=str(reason), unavailable=True)
    except Exception as error:
        message = str(error).strip().splitlines() or [""]
        return Reply(
            error=f"{type(error).__name__}: {message[0]}", traceback=traceback.format_exc()
        )


def main() -> None:
    # the pipes are the engine's alone: frameworks print, and Julia makes its stdin non-blocking
    requests: BinaryIO = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    worker = Worker(pickle.load(requests))
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:  # the parent is done, or gone
            return
        pickle.dump(answer(worker, request), replies)
        replies.flush()
