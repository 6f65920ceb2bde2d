"""Says what a machine can run, and runs jobs on this machine.

`dask_machines` does the same on the machines of a Dask scheduler.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from ..inputs.errors import CrossbenchError
from ..inputs.printable import printable
from ..plan import make_plan
from ..spec import make_spec
from .job_process import Report, run_job, versions
from .jobs import SweepJob, canonical

Arguments = dict[str, Any]
NO_INFLUENCE = ("seed", "rounds", "precision", "max_seconds", "epochs", "timeout", "machine")
"""Arguments on which it does not depend whether a machine can run a job."""


@dataclass(frozen=True)
class Survey:
    """Hold what a machine says of itself. host: its name.

    problems: why it cannot run a job, by the key of the job's arguments; None if it can.
    """

    host: str
    versions: str
    problems: dict[str, str | None]


@dataclass(frozen=True)
class Planned:
    """Hold a job that is to run, on one of the hosts; None: on any.

    name: of its results file. problem: why it cannot run.
    """

    name: str
    job: SweepJob
    hosts: list[str] | None = None
    problem: str | None = None


class Machines(Protocol):
    """Runs jobs on one machine or several.

    Its futures are those of `concurrent.futures` or of Dask.
    """

    def survey(self, jobs: Sequence[Arguments]) -> list[Survey]:
        """Return what each machine says of itself; CrossbenchError if none can be used."""

    def submit(self, plan: Planned, report: Report) -> Any:
        """Return the future of a job's Outcome. report: called in another thread."""

    def look(self) -> tuple[str | None, set[str]]:
        """Return why no job can run now, in words, or None; and the hosts that are gone.

        CrossbenchError where no job will run any more.
        """

    def stop(self, futures: Iterable[Any]) -> None:
        """Stop these jobs, the only ones that have not ended, and wait until they are stopped."""


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
        cells = make_plan(make_spec(**job))
    except CrossbenchError as error:
        return printable(str(error))
    missing = (cell for cell in cells if cell.unavailable and cell.named)
    return next((f"{cell.name}: {cell.unavailable}" for cell in missing), None)


class ThisMachine:
    """Runs jobs here, one after the other."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1)
        self.stopped = threading.Event()

    def survey(self, jobs: Sequence[Arguments]) -> list[Survey]:
        return [survey(jobs)]

    def submit(self, plan: Planned, report: Report) -> Any:
        job = plan.name, plan.job.arguments, versions()
        return self.executor.submit(run_job, *job, self.stopped.is_set, report)

    def look(self) -> tuple[str | None, set[str]]:
        return None, set()

    def stop(self, futures: Iterable[Any]) -> None:
        self.stopped.set()
        self.executor.shutdown(cancel_futures=True)
