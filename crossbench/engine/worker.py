"""The worker process: one framework on one device, doing what the parent asks, one thing at a time.

Requests are pickled on the standard input; replies.py says how the answers go to the standard
output. What a framework prints goes to the standard error.
"""

from __future__ import annotations

import gc
import os
import pickle
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
from msgspec import Meta

from .. import adapters
from ..data import Dataset, Split
from ..gpus import find_gpus
from ..results.records import Count, Epoch, Parity, Peak, Positive, Trained
from ..words import clean
from ..workload import Batches, Job, Unavailable, Workload
from . import parity, replies, usage
from .batches import AugmentedBatches, array_batches, as_inputs
from .checked import AdapterError, CheckedWorkload, check_seconds
from .timing import best_seconds, repeated_epoch, timed_epoch

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

    peak_memory: Count | None
    cpus_allowed: Positive | None


def save_arrays(dataset: Dataset, directory: Path) -> None:
    """Write the data once for all workers, who map it into their memory."""
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        np.save(directory / f"{name}_inputs.npy", split.inputs)
        np.save(directory / f"{name}_labels.npy", split.labels)


class Worker:
    """The requests that a worker answers: its public methods, by name. What they return is decoded
    in the parent as the type that they declare.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.adapter = adapters.get(task.framework)
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
        self.batches = self._batches()
        self.workload.place(self.batches)
        gc.collect()
        gc.freeze()  # what is there stays: to look through it before every epoch takes 0.1 s
        return Started(self.workload.details(), self.workload.threads())

    def epoch(self, number: int, epoch: int) -> Epoch:
        """The round's first epoch, or a further one: both begin with the initial weights."""
        if epoch == 0:
            usage.reset_peak_resident()
        on_gpu = self.task.gpu is not None
        if on_gpu and epoch > 0:
            rewind = partial(self._rewind, epoch)
            done = repeated_epoch(self.workload, rewind, self.gpu, number, epoch)
        else:
            if epoch <= 1:
                self.workload.load_weights(self.initial)
            self._draw(max(0, epoch - 1))  # the cold one and the first steady one begin alike
            done = timed_epoch(self.workload, self.gpu, number, epoch)
        if on_gpu:
            self.workload.free_memory()
        return done

    def trail(self) -> Trail:
        peak = usage.peak_resident() if self.task.gpu is None else self.workload.peak_memory()
        return Trail(peak, usage.cpus_allowed())

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
        test, size = self._split("test"), self.task.batch_size
        predictions, right = self.task.job.model.loss.predictions, 0
        for i in range(0, len(test), size):
            logits = self.workload.predict(as_inputs(test.inputs[i : i + size]))
            right += int((predictions(logits) == test.labels[i : i + size]).sum())
        return right / len(test)

    def _build(self, job: Job) -> Workload:
        return CheckedWorkload(self.adapter.build(job), job.model)

    def _rewind(self, epoch: int) -> None:
        """Go to where a steady epoch begins: the initial weights, or what those before it left."""
        self.workload.load_weights(self.initial)
        for before in range(epoch - 1):
            self._draw(before)
            self.workload.train_epoch()
        self._draw(epoch - 1)

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
