"""The order of the work: parity for every cell, a first round each, then interleaved rounds.

One worker trains at a time. A worker that fails takes its own cell down, and no other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..models import Model
from ..results.records import Cell, CellResult, Settings
from ..workload import Job
from . import parity
from .process import WorkerFailure, WorkerProcess
from .usage import Clock
from .worker import Round, Started, Task

INSTALL_SECONDS = 3600.0

Progress = Callable[[str], None]
"""Told what begins, in a few words."""


def measure(
    cells: list[Cell],
    model: Model,
    data: Path,
    batch_size: int,
    settings: Settings,
    progress: Progress,
) -> list[CellResult]:
    """Prove and time every cell that is available; data is where save_arrays wrote it."""
    results = [CellResult(cell) for cell in cells]
    tasks = {
        id(result): Task(
            result.cell.framework,
            Job(model, result.cell.device, result.cell.threads, "float32"),
            data,
            batch_size,
            settings.seed,
        )
        for result in results
    }
    for result in results:
        if result.cell.unavailable:
            result.status, result.reason = "unavailable", result.cell.unavailable
    progress("parity")
    _prove_all(results, tasks, settings, progress)
    with ExitStack() as stack:
        workers = {}
        for result in _alive(results):
            progress(f"{result.name}: first epoch")
            clock = Clock.start()
            worker = stack.enter_context(WorkerProcess(tasks[id(result)], settings.timeout))
            workers[id(result)] = worker
            with _failing("in its first round", result):
                _first_round(worker, clock, result, settings.epochs)
        shuffled = random.Random(settings.seed)
        for number in range(1, settings.rounds + 1):
            for result in shuffled.sample(alive := _alive(results), len(alive)):
                progress(f"{result.name}: round {number} of {settings.rounds}")
                with _failing(f"in round {number}", result):
                    _round(workers[id(result)], result, number, settings.epochs)
    for result in _alive(results):
        result.status = "ran"
    return results


def _prove_all(
    results: list[CellResult], tasks: dict[int, Task], settings: Settings, progress: Progress
) -> None:
    """In processes of their own, which leave the timed ones cold; nothing is timed meanwhile."""
    workers: list[WorkerProcess] = []

    def start(result: CellResult, timeout: float, show: bool = False) -> WorkerProcess:
        workers.append(WorkerProcess(tasks[id(result)], timeout, show))
        return workers[-1]

    def prove(result: CellResult) -> None:
        with _failing("in parity", result), start(result, settings.timeout) as worker:
            if what := worker.ask("to_install"):
                progress(f"{result.name}: {what}")
                with start(result, INSTALL_SECONDS, show=True) as installer:
                    installer.ask("install")
            result.parity = worker.ask("parity", expected.result())

    if not (alive := _alive(results)):
        return
    with ThreadPoolExecutor(len(alive) + 1) as pool:
        expected = pool.submit(parity.reference, tasks[id(alive[0])].job.model)
        try:
            list(pool.map(prove, alive))
        except BaseException:  # Ctrl-C: the pool would wait for the answers
            for worker in workers:
                worker.kill()
            raise


def _first_round(worker: WorkerProcess, clock: Clock, result: CellResult, epochs: int) -> None:
    started: Started = worker.ask("start")
    result.start_seconds, _ = clock.seconds()
    result.details, result.threads_reported = started.details, started.threads
    _round(worker, result, 0, epochs)
    result.test_accuracy = worker.ask("test_accuracy")


def _round(worker: WorkerProcess, result: CellResult, number: int, epochs: int) -> None:
    done: Round = worker.ask("round", number, epochs)
    result.epochs += done.epochs
    result.peak_memory = max(result.peak_memory or 0, done.peak_memory)
    result.cpus_allowed = done.cpus_allowed


def _alive(results: list[CellResult]) -> list[CellResult]:
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
