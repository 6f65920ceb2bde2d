"""The worker process: one framework on one device, doing what the parent asks, one thing at a time.

Requests are pickled on the standard input; replies.py says how the answers go to the standard
output. What a framework prints goes to the standard error.
"""

from __future__ import annotations

import gc
import os
import pickle
import traceback
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
from msgspec import Meta

from .. import adapters
from ..data import Dataset, Split
from ..gpus import find_gpus
from ..models import Weights
from ..results.records import Count, Epoch, Parity, Peak, Positive, Trained
from ..words import clean
from ..workload import Batches, Job, Unavailable, Workload
from . import evidence, parity, replies, usage
from .batches import AugmentedBatches, array_batches, as_inputs
from .checked import AdapterError, CheckedWorkload, check_seconds
from .timing import best_seconds, finite, repeated_epoch, timed, timed_epoch

MATRIX = {"cpu": 2048, "gpu": 8192}
"""Rows and columns of the matrices of the peak: 0.02 and 1.1 TFLOP a product."""
COPY_BYTES = {"cpu": 2**28, "gpu": 2**31}
"""Bytes of the copy: more than any cache holds, and enough to hide the wait for its end."""
TRACEBACK = 2**16
"""Characters of the end of a traceback that are kept."""

Accuracy = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class Task:
    """What a worker is for.

    data: the directory of the arrays that save_arrays wrote. batches: of an epoch. gpu: its index
    among the visible ones; None on the CPU.
    """

    framework: str
    job: Job
    data: Path
    batch_size: int
    batches: int
    seed: int
    gpu: int | None = None


@dataclass(frozen=True)
class Started:
    details: dict[str, str]
    threads: Positive | None


@dataclass(frozen=True)
class Trail:
    """What a process that has trained leaves to be read: bytes, and CPUs."""

    peak_memory: Positive | None
    cpus_allowed: Positive | None
    changes: dict[str, list[float | None]]
    """Of each parameter over the first steady epoch, as evidence.sketch gives them."""


def save_arrays(dataset: Dataset, directory: Path) -> None:
    """Write the data once for all workers, who map it into their memory."""
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        np.save(directory / f"{name}_inputs.npy", split.inputs)
        np.save(directory / f"{name}_labels.npy", split.labels)


def split(task: Task, name: str) -> Split:
    """Return the "train" or "test" examples, mapped from the files of save_arrays."""
    inputs, labels = (
        np.load(task.data / f"{name}_{part}.npy", mmap_mode="r") for part in ("inputs", "labels")
    )
    return Split(inputs, labels)


def epoch_batches(task: Task) -> Batches:
    """Return the batches of an epoch."""
    train, augmentation = split(task, "train"), task.job.model.data.augmentation
    if augmentation is None:
        return array_batches(train, task.batch_size, task.batches)
    return AugmentedBatches(train, task.batch_size, task.batches, augmentation, task.seed)


class Worker:
    """The requests that a worker answers: its public methods, by name. What they return is decoded
    in the parent as the type that they declare.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.adapter = adapters.get(task.framework)
        self.peak_resident = 0
        self.changes: dict[str, list[float | None]] = {}
        self.repetitions = 0
        # this process is shown one GPU alone
        self.gpu = None if task.gpu is None else find_gpus().handle(0)

    def to_install(self) -> str | None:
        return self.adapter.to_install(self.task.job.device)

    def install(self) -> None:
        self.adapter.install(self.task.job.device)

    def parity(self, expected: parity.Expected) -> Parity:
        return parity.prove(self._build, self.task.job, expected)

    def start(self) -> Started:
        """Build the workload and bring the data to the device."""
        self.workload = self._build(self.task.job)
        self.initial = self.task.job.model.initial_weights(self.task.seed)
        self.workload.load_weights(self.initial)
        self.workload.weights()  # compiled before the first epoch, after which it is timed
        self.batches = epoch_batches(self.task)
        self.workload.place(self.batches)
        gc.collect()
        gc.freeze()  # what is there stays: to look through it before every epoch takes 0.1 s
        return Started(self.workload.details(), self.workload.threads())

    def epoch(self, number: int, epoch: int) -> Epoch:
        """Time the round's first epoch, or a further one, and see whether it was over.

        The first one starts from the initial weights, the next from evidence.STEADY times these.
        """
        usage.reset_peak_resident()
        if self.task.gpu is not None and epoch > 0:
            rewind = partial(self._rewind, epoch)
            done = repeated_epoch(self.workload, rewind, self.gpu, number, epoch)
            self._rewind(epoch, evidence.STEADY)  # once more, from where it starts on a CPU
            done = replace(done, losses=finite(self.workload.train_epoch()))
        else:
            if epoch <= 1:
                self.workload.load_weights(self._start(epoch))
            self._draw(max(0, epoch - 1))  # the first two have the same data
            done = timed_epoch(self.workload, self.gpu, number, epoch)
        self.peak_resident = max(self.peak_resident, usage.peak_resident())
        return replace(done, **self._after(epoch))

    def trail(self) -> Trail:
        peak = self.peak_resident if self.task.gpu is None else self.workload.peak_memory()
        return Trail(peak, usage.cpus_allowed(), self.changes)

    def masked_losses(self) -> list[float | None]:
        """Train the first steps of the first epoch once more, with given dropout masks."""
        self.workload.load_weights(self.initial)
        self._draw(0)
        self.workload.place(evidence.first_batches(self.task.job.model, self.batches))
        return finite(self.workload.train_epoch())

    def train_on(self, number: int) -> Trained:
        """One epoch more towards an accuracy, the first, 0, from the initial weights."""
        if number == 0:
            self.workload.load_weights(self.initial)
        self._draw(number)
        epoch = timed_epoch(self.workload, self.gpu, 1, 0)
        return Trained(epoch.wall_seconds, epoch.cpu_seconds, self.test_accuracy())

    def peak(self) -> Peak:
        """What the framework reaches without a model: the best of several, after a first one."""
        size, copied = MATRIX[self.task.job.device], COPY_BYTES[self.task.job.device]
        try:
            product = best_seconds(self.workload.matrix_product(size))
            check_seconds("matrix_product()", product)
            self.workload.free_memory()
            copy = check_seconds("copy()", best_seconds(self.workload.copy(copied)))
        finally:
            self.workload.free_memory()
        return Peak(2 * size**3 / product / 1e9, 2 * copied / copy / 1e9)

    def allocated(self) -> Count | None:
        return self.workload.allocated()

    def test_accuracy(self) -> Accuracy:
        """Of the weights as they are, as a fraction."""
        test, size = split(self.task, "test"), self.task.batch_size
        predictions, right = self.task.job.model.loss.predictions, 0
        for i in range(0, len(test), size):
            logits = self.workload.predict(as_inputs(test.inputs[i : i + size]))
            right += int((predictions(logits) == test.labels[i : i + size]).sum())
        return right / len(test)

    def _build(self, job: Job) -> Workload:
        return CheckedWorkload(self.adapter.build(job), job.model)

    def _start(self, epoch: int, factor: float = evidence.STEADY) -> Weights:
        """Return the weights that a round's epoch starts from; factor: of a steady one."""
        return evidence.scaled(self.initial, factor) if epoch else self.initial

    def _after(self, epoch: int) -> dict[str, Any]:
        """Return whether the epoch that has just ended was over, as fields of Epoch."""
        first, seconds = timed(self.workload.weights)
        again, idle_seconds = timed(self.workload.weights)
        if epoch == 1:
            start = self._start(epoch)
            self.changes = {n: evidence.sketch(start[n], again[n]) for n in again}
        if self.task.gpu is not None:
            self.workload.free_memory()
        return {
            "late_seconds": max(0.0, seconds - idle_seconds),
            "still_training": any(
                not np.array_equal(first[name], again[name], equal_nan=True) for name in first
            ),
        }

    def _rewind(self, epoch: int, factor: float | None = None) -> None:
        """Go to where a steady epoch begins: its start, or what those before it left.

        Without a factor each call has another start, so that no repetition is like one before.
        """
        if factor is None:
            self.repetitions = (self.repetitions + 1) % evidence.REPETITIONS
            factor = evidence.STEADY + self.repetitions * evidence.REPETITION
        self.workload.load_weights(self._start(epoch, factor))
        for before in range(epoch - 1):
            self._draw(before)
            self.workload.train_epoch()
        self._draw(epoch - 1)

    def _draw(self, epoch: int) -> None:
        """Of the augmentation, for that epoch after the initial weights."""
        if isinstance(self.batches, AugmentedBatches):
            self.batches.epoch = epoch


def answer(worker: Worker, request: tuple[str, tuple[Any, ...]]) -> bytes:
    """Return the frame of the answer, whatever the adapter raises."""
    name, arguments = request
    try:
        return replies.encode(replies.Answer(getattr(worker, name)(*arguments)))
    except BaseException as error:  # SystemExit too: the row's reason is what was raised
        return replies.encode(_failure(error))


def _failure(error: BaseException) -> replies.Failure:
    if isinstance(error, Unavailable | AdapterError):
        return replies.Failure(clean(str(error)), unavailable=isinstance(error, Unavailable))
    try:
        lines = str(error).strip().splitlines()[:1]
    except Exception:  # of an adapter's own class
        lines = []
    trace = traceback.format_exc()[-TRACEBACK:].encode(errors="backslashreplace").decode()
    return replies.Failure(clean(": ".join([type(error).__name__, *lines])), trace)


def main() -> None:
    # the pipes are the engine's alone: frameworks print, and Julia makes its stdin non-blocking
    requests: BinaryIO = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    process, worker = os.getpid(), Worker(pickle.load(requests))
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:  # the parent is done, or gone
            return
        frame = answer(worker, request)
        if os.getpid() != process:  # a copy that the adapter has forked: it has nothing to say
            os._exit(1)
        answers.write(frame)
        answers.flush()
