"""Run proofs in worker processes, several at a time, while the reference is computed.

Nothing is timed meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..host.machine import cpu_count
from ..host.run_directory import no_space_error
from ..models import Model
from ..models.parts import Work
from ..results.parity import Parity
from . import parity
from .assignment import Assignment
from .pool import thread_pool
from .process import WorkerFailure, WorkerProcess

LARGE_MODEL = 10_000_000
"""Parameters of a model of which one process at a time computes in float64: with the gradients and
the optimizer's state each takes gigabytes."""
MIN_CONCURRENT = 3
"""Proofs at the same time, at least: each builds and compiles the model twice, and waits now and
then."""

Reference = Future[parity.ReferenceTensors]


@contextmanager
def start_proofs(
    assignments: Sequence[Assignment], models: Sequence[Model], data: Path, timeout: float
) -> Iterator[tuple[list[Reference], list[Future[list[Parity | WorkerFailure]]]]]:
    """Prove every model in a process for each assignment; at the end, kill what still runs.

    Yields the references by model, and the proofs by assignment, each by model: a WorkerFailure for
    one that the adapter does not support; where there is none, result() raises it. data: a
    directory for the references' tensors. timeout: seconds for each answer of a worker.
    """
    large = any(parity.proof_model(model).parameter_count > LARGE_MODEL for model in models)
    at_once = 1 if large else max(MIN_CONCURRENT, cpu_count())
    with thread_pool(len(models) + min(len(assignments), at_once)) as pool:
        references = [
            pool.submit(_compute_reference, model, data / f"expected{number}")
            for number, model in enumerate(models)
        ]
        group = WorkerGroup()

        def prove(assignment: Assignment) -> list[Parity | WorkerFailure]:
            if large:  # both would need their memory at the same time
                for reference in references:
                    reference.result()
            with group.start(assignment, timeout) as worker:
                return [_prove(worker, *pair) for pair in zip(models, references, strict=True)]

        try:
            yield references, [pool.submit(prove, assignment) for assignment in assignments]
        finally:
            group.kill()


@contextmanager
def start_work_proofs(
    assignments: Sequence[Assignment], works: Sequence[Work], timeout: float
) -> Iterator[list[Future[dict[Work, float | WorkerFailure | None]]]]:
    """Prove the gradients of the works in a process for each assignment; at the end, kill what
    still runs.

    Yields, by assignment, the deviation of each work from the reference, or why there is none.
    """
    group = WorkerGroup()

    def prove(assignment: Assignment) -> dict[Work, float | WorkerFailure | None]:
        found: dict[Work, float | WorkerFailure | None] = {}
        with ExitStack() as stack:
            worker: WorkerProcess | None = None
            for work in works:
                try:
                    worker = worker or stack.enter_context(group.start(assignment, timeout))
                    found[work] = worker.ask("prove_work", work)
                except WorkerFailure as failure:
                    found[work] = failure
                    if worker and worker.process.poll() is not None:
                        worker = None
        return found

    with thread_pool(min(len(assignments), max(MIN_CONCURRENT, cpu_count()))) as pool:
        try:
            yield [pool.submit(prove, assignment) for assignment in assignments]
        finally:
            group.kill()


@contextmanager
def start_tensor_proofs(
    assignments: Sequence[Assignment],
    request: str,
    compute: Callable[[Assignment], parity.ExpectedTensors],
    timeout: float,
) -> Iterator[list[Future[Any]]]:
    """Ask a process for each assignment how far it is from what is expected; at the end, kill what
    still runs.

    request: the Worker method that takes the expected tensors. compute: returns them, once for
    each batch size and precision, which may take long. Yields the proofs by assignment; where there
    is none, result() raises WorkerFailure.
    """
    large = assignments[0].job.model.parameter_count > LARGE_MODEL
    at_once = 1 if large else max(MIN_CONCURRENT, cpu_count())
    wanted = {_of_tensors(assignment): assignment for assignment in assignments}
    with thread_pool(1 if large else len(wanted)) as computing, thread_pool(at_once) as pool:
        expected = {key: computing.submit(compute, each) for key, each in wanted.items()}
        group = WorkerGroup()

        def prove(assignment: Assignment) -> Any:
            tensors = expected[_of_tensors(assignment)].result()
            with group.start(assignment, timeout) as worker:
                return worker.ask(request, tensors)

        try:
            yield [pool.submit(prove, assignment) for assignment in assignments]
        finally:
            group.kill()


def _of_tensors(assignment: Assignment) -> tuple[int, str]:
    return assignment.batch_size, assignment.job.compute


def _compute_reference(model: Model, directory: Path) -> parity.ReferenceTensors:
    try:
        return parity.compute_reference(model, directory)
    except OSError as error:
        raise no_space_error(directory.parents[1], error) from None


def _prove(worker: WorkerProcess, model: Model, reference: Reference) -> Parity | WorkerFailure:
    try:
        worker.ask("take_model", model)
        worker.ask("observe")  # while the reference is computed
        proved: Parity = worker.ask("parity", reference.result())
    except WorkerFailure as failure:
        if not failure.unsupported:
            raise
        return failure
    return proved


class WorkerGroup:
    """Collect the workers that several threads start for proofs, so that another can kill all."""

    def __init__(self) -> None:
        self.lock, self.killed = threading.Lock(), False
        self.workers: list[WorkerProcess] = []

    def start(self, assignment: Assignment, timeout: float) -> WorkerProcess:
        """Start a worker; WorkerFailure after the group was killed."""
        with self.lock:
            if self.killed:
                raise WorkerFailure("the run was interrupted")
            self.workers.append(WorkerProcess(assignment, timeout, proves=True))
            return self.workers[-1]

    def kill(self) -> None:
        """Kill all workers, and let no further one start."""
        with self.lock:
            self.killed = True
            for worker in self.workers:
                worker.kill()
