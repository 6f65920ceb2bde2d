"""Run proofs in worker processes, several at a time, while the reference is computed.

Nothing is timed meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..host.machine import cpu_count
from ..host.run_directory import no_space_error
from ..models import Model
from ..models.parts import Work, parts
from ..models.shortened import shortened
from ..results.epochs import TRAIN
from ..results.parity import Parity
from ..results.parts import PartResult
from . import batch_gradient, parity
from .assignment import Assignment
from .parity import ExpectedTensors
from .process import WorkerFailure, WorkerProcess

LARGE_MODEL = 10_000_000
"""Parameters of a model of which one process at a time computes in float64: with the gradients and
the optimizer's state each takes gigabytes."""
MIN_CONCURRENT = 3
"""Proofs at the same time, at least: each builds and compiles the model twice, and waits now and
then."""

T = TypeVar("T")
Start = Callable[[Assignment], WorkerProcess]


@dataclass(frozen=True)
class Proof:
    """Describe a kind of proof.

    field: of CellResult, where it is kept. what: is proved, in words; None for the whole model.
    prove: see Proofs.prove. expect: returns what a cell must reproduce, which may take long; None
    where the worker knows that itself. in_float32: whether it is in float32 whatever the cell's
    precision. of_batch: whether it is of a whole batch of the cell's size.
    """

    field: str
    what: str | None
    prove: Callable[..., Any]
    expect: Callable[[Assignment], ExpectedTensors] | None = None
    in_float32: bool = False
    of_batch: bool = False

    def assignment(self, of_cell: Assignment) -> Assignment:
        """Return what the worker does that proves a cell: cells for which it is equal share one."""
        found = of_cell.in_float32 if self.in_float32 else of_cell
        return replace(found, task=TRAIN) if self.of_batch else found.without_batch

    def is_large(self, model: Model) -> bool:
        """Return whether what is expected takes as much memory as a worker, and both take a lot."""
        proved = model if self.of_batch else shortened(model)
        return self.expect is not None and proved.parameter_count > LARGE_MODEL


class Proofs:
    """Compute what is expected, and prove in worker processes, each in threads; a context manager
    that kills at its end what still runs, and waits for nothing.

    data: the directory of the run's data. timeout: seconds for each answer of a worker. large:
    whether a process and the reference are too large to be in memory beside one another.
    """

    def __init__(self, data: Path, timeout: float, large: bool = False) -> None:
        self.data, self.timeout, self.large = data, timeout, large
        self.computing = ThreadPoolExecutor(1 if large else None)
        self.proving = ThreadPoolExecutor(1 if large else max(MIN_CONCURRENT, cpu_count()))
        self.lock, self.killed = threading.Lock(), False
        self.workers: list[WorkerProcess] = []

    def __enter__(self) -> Proofs:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self.computing, self.proving):
            pool.shutdown(wait=False, cancel_futures=True)
        with self.lock:
            self.killed = True
            for worker in self.workers:
                worker.kill()

    def expect(self, compute: Callable[..., T], *arguments: Any) -> Future[T]:
        """Begin to compute what workers must reproduce; DataError where it cannot be written."""

        def run() -> T:
            try:
                return compute(*arguments)
            except OSError as error:
                raise no_space_error(self.data.parent, error) from None

        return self.computing.submit(run)

    def prove(
        self, prove: Callable[..., T], assignment: Assignment, *expected: Future[Any]
    ) -> Future[T]:
        """Begin a proof: `prove` gets `self.start`, the assignment and what is expected."""

        def run() -> T:
            for future in expected if self.large else ():
                future.result()
            return prove(self.start, assignment, *expected)

        return self.proving.submit(run)

    def start(self, assignment: Assignment) -> WorkerProcess:
        """Start a worker, from any thread; WorkerFailure after the end."""
        with self.lock:
            if self.killed:
                raise WorkerFailure("the run was interrupted")
            self.workers.append(WorkerProcess(assignment, self.timeout, proves=True))
            return self.workers[-1]


def prove_parity(start: Start, assignment: Assignment, expected: Future[Any]) -> Parity:
    """Prove the assignment's model in a process."""
    with start(assignment) as worker:
        return prove_model(worker, assignment.job.model, expected)


def prove_model(worker: WorkerProcess, model: Model, expected: Future[Any]) -> Parity:
    """Prove a model; what the worker does is compared when the reference is computed."""
    worker.ask("observe", model)
    proved: Parity = worker.ask("prove_parity", model, expected.result())
    return proved


def prove_tensors(request: str, start: Start, assignment: Assignment, expected: Future[Any]) -> Any:
    """Have a process compare its tensors. request: the method of Worker that does it."""
    with start(assignment) as worker:
        return worker.ask(request, expected.result())


def prove_parts(start: Start, assignment: Assignment) -> dict[str, PartResult]:
    """Prove the gradients of all work that parts of a training step are differences of.

    A failure costs the parts with that work alone. Work of the whole model has a proof of its own.
    """
    found = parts(assignment.job.model)
    proved: dict[Work, float | WorkerFailure | None] = {}
    with ExitStack() as stack:
        worker: WorkerProcess | None = None
        for work in dict.fromkeys(work for part in found for work in part.works):
            if work.model == assignment.job.model:
                continue
            try:
                worker = worker or stack.enter_context(start(assignment))
                proved[work] = worker.ask("prove_work", work)
            except WorkerFailure as failure:
                proved[work] = failure
                if worker and worker.process.poll() is not None:
                    worker = None
    return {
        part.name: _part_result([proved[work] for work in part.works if work in proved])
        for part in found
    }


def _part_result(proved: list[float | WorkerFailure | None]) -> PartResult:
    """Return what a results file has of a part whose works have these deviations or failures."""
    found = PartResult(0.0)
    for outcome in proved:
        if isinstance(outcome, WorkerFailure):
            found.problem = str(outcome)
        elif outcome is None or found.deviation is None:
            found.deviation = None
        else:
            found.deviation = max(found.deviation, outcome)
    return found


PARITY = Proof(
    "parity",
    None,
    prove_parity,
    lambda a: parity.compute_reference(a.job.model, a.data / "expected"),
    in_float32=True,
)
PRECISION = Proof(
    "precision",
    "its precision",
    partial(prove_tensors, "prove_precision"),
    lambda a: parity.precision_reference(
        a.job.model, a.job.compute, a.data / f"expected in {a.job.compute}"
    ),
)
GRADIENT = Proof(
    "gradient",
    "a batch's gradients",
    partial(prove_tensors, "prove_gradient"),
    batch_gradient.expected_gradients,
    of_batch=True,
)
PARTS = Proof("parts", "the parts", prove_parts, in_float32=True)
