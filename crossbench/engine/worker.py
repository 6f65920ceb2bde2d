"""Run in the worker process: one framework on one device answers one request at a time.

The standard input and output are one connection to the parent: requests come pickled, and
replies.py encodes the answers. What a framework prints goes to the standard error.
"""

from __future__ import annotations

import gc
import os
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from .. import adapters
from ..host.gpus import find_gpus
from ..inputs.printable import printable
from ..models import Model
from ..models.parts import Part, Work
from ..models.undropped import without_dropouts
from ..results.cells import Change
from ..results.epochs import PREDICT, Epoch, Latency, Predictions, TargetEpoch
from ..results.machine import Peak
from ..results.number_types import Count, NonNegative, Positive
from ..results.parity import GradientParity, Parity, PrecisionParity
from ..results.parts import PartTime
from ..results.replay import Replay
from ..results.untimed import UntimedCalls
from ..workload import Batches, Job, Unavailable
from . import batch_gradient, evidence, parity, parts, replies, usage
from .assignment import Assignment, epoch_batches, load_split
from .batches import ArrayBatches, as_inputs
from .checked import AdapterError, CheckedWorkload
from .epoch_start import EpochStart
from .epoch_timer import EpochTimer
from .mapped import mapped, release
from .parity import ExpectedTensors
from .peak import (
    PeakWork,
    check_copy,
    copy_gigabytes,
    gpu_bandwidth,
    host_copy_gigabytes,
    matrix_multiplication_gflops,
)
from .replay import Replayer, change_distance
from .sketch import sketches
from .tasks import PredictionTask, TrainingTask, WorkloadTask, prediction_loss
from .timing import finite_or_none, timed_epoch, timed_items

MAX_TRACEBACK = 2**16
"""Characters that are kept of the end of a traceback."""
MIN_LATENCIES, MAX_LATENCY_SECONDS = 200, 2.0
"""Batches whose latency is timed, and seconds after which no further epoch of them begins."""
OOM_SCORE = Path("/proc/self/oom_score_adj")
"""Linux: the higher, the sooner a process is killed where memory runs out (proc(5))."""
OOM_SCORE_INCREMENT, OOM_SCORE_MAX = 500, 1000

Accuracy = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class StartReply:
    """Hold what a workload reports when it is built."""

    details: dict[str, str]
    threads: Positive | None
    source_code: str


@dataclass(frozen=True)
class FinalStats:
    """Hold what is read from a process after a round.

    peak_memory: bytes. cpus_allowed: the number of CPUs that its threads may run on.
    """

    peak_memory: Positive | None
    cpus_allowed: Positive | None
    changes: dict[Count, list[Change]]
    """Changes of the weights by epoch, in each of its repetitions; empty where the epochs do not
    train."""
    predictions: Predictions | None
    """What the first epoch predicted; None where the epochs train."""
    choices: dict[str, str]
    """The details that the start did not have: what the variant chose while it ran."""


@dataclass(frozen=True)
class Drift:
    """Hold how far an epoch moves from perturbed weights; see loss_drift of CellResult."""

    losses: list[NonNegative | None]
    change: NonNegative


@dataclass(frozen=True)
class TestFigures:
    """Hold what the weights give for the test examples.

    accuracy: a fraction; None where the model has none. loss: the mean; None if it is not finite.
    """

    accuracy: Accuracy | None
    loss: float | None


class Worker:
    """Answer requests: each names a public method.

    The parent decodes an answer as the return type that the method declares.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.adapter = adapters.get(assignment.framework, assignment.job.variant)
        self.predictions: Predictions | None = None
        self.part_timer: parts.PartTimer | None = None
        # the environment shows this process a single GPU
        self.gpu = None if assignment.gpu is None else find_gpus().handle(0)

    def to_install(self) -> str | None:
        return self.adapter.to_install(self.assignment.job.device)

    def install(self) -> None:
        self.adapter.install(self.assignment.job.device)

    def observe(self, model: Model, seed: int = parity.SEED) -> None:
        """Do what the proof of a model compares: the reference's seed may not be known yet."""
        job = replace(self.assignment.job, model=model)
        self.observed = parity.observe(self._build, job, seed)

    def prove_parity(self, model: Model, expected: ExpectedTensors) -> Parity:
        """Return the deviations of what `observe` did, anew where the reference's seed differs."""
        if expected.seed != self.observed.seed:
            self.observe(model, expected.seed)
        return parity.judge(self.observed, expected)

    def prove_precision(self, expected: ExpectedTensors) -> PrecisionParity:
        """Return how the job computes in its precision."""
        return parity.prove_precision(self._build, self.assignment.job, expected)

    def prove_gradient(self, expected: ExpectedTensors) -> GradientParity:
        """Return how far the gradients of a whole batch are from the reference's."""
        return batch_gradient.prove(self._build, self.assignment, expected)

    def prove_work(self, work: Work) -> NonNegative | None:
        """Return how far the float64 gradients of the work are from the reference's."""
        return parts.deviation(self._build, self.assignment.job, work)

    def start(self) -> StartReply:
        """Build the workload and bring the data to the device."""
        self.workload = self._build(self.assignment.job)
        initial = mapped(self.assignment.job.model.initial_weights(self.assignment.seed))
        self.workload.load_weights(initial)
        self.workload.weights()  # compiles it before the first epoch, after which it is timed
        self.batches = epoch_batches(self.assignment)
        if isinstance(self.batches, ArrayBatches):
            arrays = mapped({"inputs": self.batches.inputs, "labels": self.batches.labels})
            self.batches = replace(self.batches, inputs=arrays["inputs"], labels=arrays["labels"])
        self._place(self.batches)
        self.work: WorkloadTask = TrainingTask(self.workload)
        if self.assignment.task == PREDICT:
            self.work = PredictionTask(self.workload, self.assignment.job.model, self.batches)
        self.starts = EpochStart(self.work, initial, self.batches)
        self.timer = EpochTimer(self.work, self.starts, self.assignment.gpu is not None, self.gpu)
        gc.collect()
        gc.freeze()  # all of this stays: scanning it before every epoch takes 0.1 s
        self.details = self.workload.details()
        return StartReply(self.details, self.workload.threads(), self.workload.source_code)

    def epoch(self, number: int, epoch: int, steps: int) -> Epoch:
        """Time an epoch of so many steps (0 is the round's first), and check that it was over when
        it returned.
        """
        self._take(steps)
        timed, result = self.timer.time(number, epoch)
        if self.predictions is None and isinstance(self.work, PredictionTask):
            self.predictions = self.work.predictions(result)
        return timed

    def _take(self, steps: int) -> None:
        """Let the epochs that follow take so many of the batches, the first ones."""
        if steps != self.starts.steps:
            self.starts.take(self.batches, steps)
            self._place(self.starts.batches)

    def _place(self, batches: Batches) -> None:
        """Place batches of an epoch, and keep no other copy of them in memory."""
        self.workload.place(batches)
        if isinstance(batches, ArrayBatches):
            release([batches.inputs, batches.labels])

    def replay(self, number: int) -> Replay:
        """Run a timed epoch of the round once more, in pieces; no epochs can follow."""
        self._take(len(self.batches))
        return Replayer(self.work, self.starts, self.batches).replay(self.timer.runs, number)

    def final_stats(self) -> FinalStats:
        """Return the figures of the process after a round."""
        on_cpu = self.assignment.gpu is None
        peak = self.timer.peak_resident if on_cpu else self.workload.peak_memory()
        details = self.workload.details().items()
        choices = {name: value for name, value in details if name not in self.details}
        changes: dict[int, list[Change]] = {}
        for run in self.timer.runs:
            if run.change:
                before = changes.setdefault(run.epoch, [])
                # of a repetition the size alone is compared, and there may be hundreds
                kept = {
                    name: np.array([np.linalg.norm(array)]) if before else array
                    for name, array in run.change.items()
                }
                before.append({name: finite_or_none(values) for name, values in kept.items()})
        return FinalStats(peak, usage.cpus_allowed(), changes, self.predictions, choices)

    def untimed_calls(self) -> dict[str, UntimedCalls]:
        """Return what the calls took that are in no epoch's seconds."""
        self.workload.place(self.batches)  # not for the first time
        return self.workload.meter.calls()

    def latency(self, number: int) -> Latency:
        """Time the prediction of each batch of an epoch, one after the other, each waited for.

        A short epoch is predicted again until a percentile says something. The logits must be those
        that an untimed epoch returns, from weights that no epoch before started from.
        """
        seconds, scale = list[float](), evidence.LATENCY_SCALE
        bound = evidence.LATENCY_BOUNDS[self.assignment.job.compute]
        next(self.workload.predict_batches(), None)  # may be another program, which it compiles
        while not seconds or (len(seconds) < MIN_LATENCIES and sum(seconds) < MAX_LATENCY_SECONDS):
            self.starts.load(scale)
            scale -= evidence.REPETITION_INCREMENT
            of_epoch, logits = timed_items(self.workload.predict_batches())
            seconds += of_epoch
            found = self.work.losses(logits)
            expected = self.work.losses(self.workload.predict_epoch())
            if not np.allclose(found, expected, rtol=bound, atol=0, equal_nan=True):
                raise AdapterError(
                    "predict_batches() of the adapter returned other logits than predict_epoch()"
                )
        median, p99 = np.percentile(seconds, 50), np.percentile(seconds, 99, method="higher")
        return Latency(number, float(median), float(p99))

    def undropped_losses(self) -> list[float | None]:
        """Train the first steps of the first epoch by the model whose dropouts drop nothing."""
        job = self.assignment.job
        workload = self._build(replace(job, model=without_dropouts(job.model)))
        self._take(len(self.batches))
        self.starts.augment(0)
        workload.load_weights(self.starts.weights(1.0))
        workload.place(evidence.first_batches(job.model, self.batches))
        return finite_or_none(workload.train_epoch())

    def drift(self) -> Drift:
        """Return how far the first steady epoch moves where it starts from perturbed weights."""
        (timed, *_) = (run for run in self.timer.runs if run.epoch == 1)
        weights = evidence.perturbed(self.starts.weights(timed.scale), self.assignment.job.compute)
        self.workload.load_weights(weights)
        self.starts.take(self.batches, len(timed.steps))
        self.starts.augment(0)
        self._place(self.starts.batches)
        losses = self.workload.train_epoch()
        change = sketches(weights, self.workload.weights())
        with np.errstate(all="ignore"):
            found = np.abs(losses / timed.steps[:, 0] - 1)
        return Drift(finite_or_none(found), change_distance(timed.change, change))

    def target_epoch(self, number: int, what: str) -> TargetEpoch:
        """Train one more epoch towards a target; number 0 starts from the initial weights.

        what: "accuracy" or "loss", of the test examples.
        """
        if number == 0:
            self.starts.load(1.0)
        self.starts.augment(number)
        epoch, result = timed_epoch(self.work, self.gpu, 1, 0)
        losses, figures = finite_or_none(self.work.losses(result)), self.test()
        reached = figures.accuracy if what == "accuracy" else figures.loss
        return TargetEpoch(epoch.wall_seconds, epoch.cpu_seconds, reached, losses)

    def peak(self, work: PeakWork) -> Peak:
        """Return the fastest matrix multiplication and copy of the framework, without a model."""
        arrays, threads = self.workload.arrays(), self.assignment.job.threads
        try:
            product = matrix_multiplication_gflops(arrays, work, self.assignment.job.compute)
            self.workload.free_memory()
            copied = copy_gigabytes(arrays, work)
        finally:
            self.workload.free_memory()
        on_gpu = self.assignment.gpu is not None
        limit = gpu_bandwidth(self.gpu) if on_gpu else host_copy_gigabytes(work, threads, copied)
        check_copy(copied, limit)
        return Peak(product, copied, limit)

    def time_parts(self, group: list[Part], number: int) -> list[PartTime]:
        """Time parts of a training step that follow one another; no epochs can follow."""
        if self.part_timer is None:
            del self.workload, self.work, self.starts, self.batches  # their memory is needed
            del self.timer
            self.part_timer = parts.PartTimer(
                lambda model: self._build(replace(self.assignment.job, model=model)),
                self.assignment.batch_size,
            )
        return self.part_timer.time(group, number)

    def allocated(self) -> Count | None:
        """Return the bytes that an epoch allocates; None where the framework cannot tell."""
        return self.workload.allocated()

    def test(self) -> TestFigures:
        """Return what the current weights give for the test examples, batch by batch."""
        model, loss, correct = self.assignment.job.model, 0.0, 0
        test, size = load_split(self.assignment, "test"), self.assignment.batch_size
        for start in range(0, len(test), size):
            batch = slice(start, start + size)
            logits = self.workload.predict(as_inputs(test.inputs[batch]))
            labels = test.labels[batch]
            loss += len(labels) * prediction_loss(model, logits, labels)
            if model.has_accuracy:
                correct += int((model.loss.predictions(logits) == labels).sum())
        accuracy = correct / len(test) if model.has_accuracy else None
        return TestFigures(accuracy, finite_or_none([loss / len(test)])[0])

    def _build(self, job: Job) -> CheckedWorkload:
        return CheckedWorkload(self.adapter.build(job), job.model)


def answer(worker: Worker, request: tuple[str, tuple[Any, ...]]) -> bytes:
    """Return the encoded answer, a Failure for whatever the adapter raises."""
    name, arguments = request
    try:
        return replies.encode(replies.Answer(getattr(worker, name)(*arguments)))
    except BaseException as error:  # SystemExit too: it becomes the cell's reason
        return replies.encode(_failure(error))


def _failure(error: BaseException) -> replies.Failure:
    if isinstance(error, Unavailable | AdapterError):
        return replies.Failure(printable(str(error)), unavailable=isinstance(error, Unavailable))
    try:
        lines = str(error).strip().splitlines()[:1]
    except Exception:  # raised by the __str__ of an adapter's own class
        lines = []
    trace = traceback.format_exc()[-MAX_TRACEBACK:].encode(errors="backslashreplace").decode()
    return replies.Failure(
        printable(": ".join([type(error).__name__, *lines])),
        trace,
        unsupported=isinstance(error, NotImplementedError),
    )


def be_killed_first() -> None:
    """Tell Linux to kill this process, not the one that holds all results, where memory runs out.

    The row of a killed worker says so, and the others go on.
    """
    with suppress(OSError):  # another system
        score = int(OOM_SCORE.read_text())
        OOM_SCORE.write_text(str(min(OOM_SCORE_MAX, score + OOM_SCORE_INCREMENT)))


def main() -> None:
    """Answer the parent's requests until it closes the connection."""
    be_killed_first()
    # only the engine uses it: frameworks print, and Julia makes its stdin non-blocking
    parent = Connection(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    process, worker = os.getpid(), Worker(parent.recv())
    while True:
        try:
            request = parent.recv()
        except EOFError:  # the parent has finished, or is gone
            return
        reply = answer(worker, request)
        if os.getpid() != process:  # a process that the adapter forked must not answer
            os._exit(1)
        parent.send_bytes(reply)
