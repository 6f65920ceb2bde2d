"""The order of the work: parity for every cell, a first round each, then interleaved rounds.

One worker trains at a time. A worker that fails takes its own cell down, and no other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from ..models import Model
from ..results.comparison import Comparison
from ..results.records import CellResult, Settings, Trained
from ..results.statistics import LEAST
from ..workload import Job
from . import parity
from .process import WorkerFailure, WorkerProcess
from .sampler import Sampler
from .usage import Clock
from .worker import Round, Started, Task

INSTALL_SECONDS = 3600.0

Progress = Callable[[str], None]
"""Told what begins, in a few words."""

Keep = Callable[[Comparison], None]
"""Given the comparison whenever something in it is finished."""


def measure(
    comparison: Comparison, model: Model, data: Path, progress: Progress, keep: Keep
) -> None:
    """Prove and time every cell that is pending, from where it is; data is where save_arrays
    wrote it.
    """
    results, settings = comparison.results, comparison.settings
    tasks = {
        result.name: Task(
            result.cell.framework,
            Job(model, result.cell.device, result.cell.threads, "float32"),
            data,
            comparison.data.batch_size,
            settings.seed,
        )
        for result in results
    }
    keep(comparison)
    progress("parity")
    _prove_all(_pending(results), tasks, settings, progress)
    keep(comparison)
    with ExitStack() as stack:
        workers = {}
        for result in _pending(results):
            progress(f"{result.name}: first epoch")
            clock = Clock.start()
            worker = stack.enter_context(WorkerProcess(tasks[result.name], settings.timeout))
            workers[result.name] = worker
            with _failing("in its first round", result):
                _first_round(worker, clock, result, settings.epochs)
            keep(comparison)
        for number in _numbers(comparison):
            for result in _shuffled(_pending(results), settings.seed, number):
                if result.has_round(number):  # before an interruption
                    continue
                progress(
                    f"{result.name}: round {number} of {settings.rounds or 'as many as needed'}"
                )
                with _failing(f"in round {number}", result):
                    _round(workers[result.name], result, number, settings.epochs)
                keep(comparison)
        for result in _pending(results):
            progress(f"{result.name}: what the device can do")
            with _failing("measuring the device's peak", result):
                result.peak = result.peak or workers[result.name].ask("peak")
            keep(comparison)
        if settings.target_accuracy is not None:
            for result in [r for r in _pending(results) if not r.to_accuracy]:
                with _failing("on the way to the target accuracy", result):
                    _to_accuracy(workers[result.name], result, settings, progress)
                keep(comparison)
    for result in _pending(results):
        result.status = "ran"
    keep(comparison)


def _to_accuracy(
    worker: WorkerProcess, result: CellResult, settings: Settings, progress: Progress
) -> None:
    """Whole only: what was interrupted starts anew."""
    target, epochs = settings.target_accuracy or 1.0, list[Trained]()
    while sum(epoch.wall_seconds for epoch in epochs) < settings.max_seconds:
        progress(f"{result.name}: epoch {len(epochs) + 1} to an accuracy of {target:.0%}")
        epochs.append(worker.ask("train_on", not epochs))
        if epochs[-1].accuracy >= target:
            break
    result.to_accuracy = epochs


def _numbers(comparison: Comparison) -> Iterator[int]:
    """Of the rounds: as many as asked for, or until they are precise, or the time is used up."""
    settings, start = comparison.settings, time.monotonic()
    for number in count(1):
        if settings.rounds is not None and number > settings.rounds:
            return
        if settings.rounds is None and number > LEAST:
            late = time.monotonic() - start > settings.max_seconds
            if late or comparison.precise:
                return
        yield number


def _shuffled(results: list[CellResult], seed: int, number: int) -> list[CellResult]:
    return random.Random(f"{seed} {number}").sample(results, len(results))


def _prove_all(
    results: list[CellResult], tasks: dict[str, Task], settings: Settings, progress: Progress
) -> None:
    """In processes of their own, which leave the timed ones cold; nothing is timed meanwhile."""
    workers: list[WorkerProcess] = []

    def start(result: CellResult, timeout: float, show: bool = False) -> WorkerProcess:
        workers.append(WorkerProcess(tasks[result.name], timeout, show))
        return workers[-1]

    def prove(result: CellResult) -> None:
        with _failing("in parity", result), start(result, settings.timeout) as worker:
            if what := worker.ask("to_install"):
                progress(f"{result.name}: {what}")
                with start(result, INSTALL_SECONDS, show=True) as installer:
                    installer.ask("install")
            result.parity = worker.ask("parity", expected.result())

    unproved = [result for result in results if result.parity is None]
    if not unproved:
        return
    with ThreadPoolExecutor(len(unproved) + 1) as pool:
        expected = pool.submit(parity.reference, tasks[unproved[0].name].job.model)
        try:
            list(pool.map(prove, unproved))
        except BaseException:  # Ctrl-C: the pool would wait for the answers
            for worker in workers:
                worker.kill()
            raise


def _first_round(worker: WorkerProcess, clock: Clock, result: CellResult, epochs: int) -> None:
    """Of the process. After an interruption its figures are there already: it warms up only."""
    started: Started = worker.ask("start")
    start_seconds, _ = clock.seconds()
    if result.has_round(0):
        if started.details != result.details:
            raise WorkerFailure("its versions are others than before the interruption")
        worker.ask("round", 0, 1)
        return
    result.start_seconds = start_seconds
    result.details, result.threads_reported = started.details, started.threads
    _round(worker, result, 0, epochs)
    result.test_accuracy = worker.ask("test_accuracy")


def _round(worker: WorkerProcess, result: CellResult, number: int, epochs: int) -> None:
    with Sampler(worker.process.pid, result.cell.device) as sampler:
        done: Round = worker.ask("round", number, epochs)
    result.epochs += done.epochs
    if usage := sampler.usage(done.epochs):
        result.usage.append(usage)
    result.peak_memory = max(result.peak_memory or 0, done.peak_memory)
    result.cpus_allowed = done.cpus_allowed


def _pending(results: list[CellResult]) -> list[CellResult]:
    return [result for result in results if result.status == "pending"]


@contextmanager
def _failing(where: str, result: CellResult) -> Iterator[None]:
    try:
        yield
    except WorkerFailure as failure:
        if failure.unavailable:
            result.status, result.reason = "unavailable", str(failure)
        else:
            result.status, result.reason = "failed", f"{failure} ({where})"
        result.traceback = failure.traceback
