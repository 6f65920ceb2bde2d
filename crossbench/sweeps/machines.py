"""Runs jobs on this machine, by an executor of concurrent.futures; says what a machine can run.

`dask_machines` does the same on the machines of a Dask scheduler.
"""

from __future__ import annotations

import concurrent.futures
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Literal, Protocol

from ..inputs.checks import short_error
from ..inputs.errors import CrossbenchError
from ..inputs.printable import printable
from ..plan import make_plan, nothing_to_run
from ..spec import make_spec
from .job_process import STOP_SECONDS, Cancelled, Order, Outcome, run_job, versions
from .jobs import canonical

Arguments = dict[str, Any]
NO_INFLUENCE = ("seed", "rounds", "precision", "max_seconds", "epochs", "timeout", "machine")
"""Arguments on which it does not depend whether a machine can run a job."""


@dataclass(frozen=True)
class Change:
    """Hold what an order, named by its results file, does now on a machine.

    state: "queued" (again), "waits" (for another job on its machine) or "runs".
    """

    name: str
    state: Literal["queued", "waits", "runs"]
    machine: str | None = None


@dataclass(frozen=True)
class End:
    """Hold how an order ended, named by its results file."""

    name: str
    outcome: Outcome


@dataclass(frozen=True)
class News:
    """Hold what happened to all machines, in words that are shown."""

    words: str


Event = Change | End | News


@dataclass(frozen=True)
class Survey:
    """Hold what a machine says of itself. host: its name.

    problems: why it cannot run a job, by the key of the job's arguments; None if it can.
    """

    host: str
    versions: str
    problems: dict[str, str | None]


class Machines(Protocol):
    """Runs orders on one machine or several."""

    def survey(self, jobs: Sequence[Arguments]) -> list[Survey]:
        """Return what each machine says of itself; CrossbenchError if none can be used."""

    def submit(self, order: Order, hosts: Sequence[str] | None) -> None:
        """Have the order run, on one of the hosts; None: on any."""

    def next(self, timeout: float) -> Event | None:
        """Return the next event; None if there is none for `timeout` seconds."""

    def stop(self) -> None:
        """Stop all jobs and wait until they are stopped."""


def survey(jobs: Iterable[Arguments]) -> Survey:
    """Return what this machine says of itself."""
    problems = {can_run_key(job): _problem(job) for job in jobs}
    return Survey(socket.gethostname(), versions(), problems)


def can_run_key(job: Arguments) -> str:
    """Return what it depends on whether a machine can run a job."""
    return canonical({word: value for word, value in job.items() if word not in NO_INFLUENCE})


def _problem(job: Arguments) -> str | None:
    """Return why this machine cannot run the job, in a line; None if it can."""
    try:
        spec = make_spec(**job)
        cells = make_plan(spec)
    except CrossbenchError as error:
        return printable(str(error))
    if not cells:
        return nothing_to_run(spec)
    missing = (cell for cell in cells if cell.unavailable and cell.named)
    return next((f"{cell.name}: {cell.unavailable}" for cell in missing), None)


class ExecutorMachines:
    """Runs orders by an executor; without one here, one after the other.

    Only threads can say when a job begins to run: of other executors' jobs it is their futures.
    """

    def __init__(self, executor: Executor | None) -> None:
        self.is_own = executor is None
        self.executor = ThreadPoolExecutor(1) if executor is None else executor
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.futures: dict[Future[Outcome], str] = {}

    def survey(self, jobs: Sequence[Arguments]) -> list[Survey]:
        return [self.executor.submit(survey, list(jobs)).result()]

    def submit(self, order: Order, hosts: Sequence[str] | None) -> None:
        if isinstance(self.executor, ThreadPoolExecutor):
            future = self.executor.submit(run_job, order, report=self._reporter(order))
        else:
            future = self.executor.submit(run_job, order)
        self.futures[future] = order.name
        future.add_done_callback(self._ended)

    def next(self, timeout: float) -> Event | None:
        try:
            return self.events.get(timeout=timeout)
        except Empty:
            return None

    def stop(self) -> None:
        """Cancel what has not begun, and wait for the jobs, which the caller has told to stop."""
        for future in self.futures:
            future.cancel()
        concurrent.futures.wait(self.futures, timeout=2 * STOP_SECONDS)
        if self.is_own:
            self.executor.shutdown()

    def _reporter(self, order: Order) -> Any:
        host = socket.gethostname()
        return lambda state: self.events.put(Change(order.name, state, host))

    def _ended(self, future: Future[Outcome]) -> None:
        name = self.futures[future]
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.events.put(End(name, future.result()))
        elif not isinstance(error, Cancelled):
            self.events.put(End(name, Outcome("", short_error(error))))
