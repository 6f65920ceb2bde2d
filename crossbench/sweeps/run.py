"""Runs the jobs of a sweep, on this machine or on several, and keeps each result: `sweep`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..host.run_directory import run_directory
from ..inputs.checks import shown
from ..inputs.errors import SpecError
from ..workload import missing
from .folder import ENDED, Folder, State, Task, result_key
from .job_process import Order, Outcome, versions
from .jobs import Job, check_option, make_jobs
from .machines import Change, End, Event, ExecutorMachines, Machines, News, can_run_key
from .since import unchanged

if TYPE_CHECKING:
    from distributed import Client

EVENT_SECONDS = 1.0
"""How long to wait for an event before the display is drawn anew."""
STATE_SECONDS = 1.0
"""How often the state of a sweep is written at most: that of 10,000 jobs has a megabyte."""

Update = Callable[[Sequence[Task]], None]
Problems = dict[str, dict[str, str | None]]
"""Why each host cannot run each job, by the names of the jobs and the hosts; None where it can."""


def sweep(
    jobs: Iterable[Mapping[str, Any]],
    directory: str | Path,
    executor: Executor | Client | Scheduler | None = None,
    *,
    machines: str = "any",
    workers: str | Sequence[str] | None = None,
    resources: Mapping[str, float] | None = None,
    keep_going: bool = False,
    since: str | Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
    on_update: Update = lambda _: None,
) -> list[Task]:
    """Run `crossbench.run` with the arguments of each job, and keep the results files.

    A job runs in a process of its own, and one at a time on a host. What is in the directory is not
    run again, so the same call goes on with a sweep that was stopped; failed jobs are tried again.

    jobs: mappings of crossbench.run's arguments; text, numbers, lists and mappings only.
    directory: where the results files come, one for each job; or the URL of a directory that all
        machines can write to, such as "s3://bucket/sweep" or "file:///shared/sweep", by fsspec.
    executor: an executor of concurrent.futures, or a Dask client, whose workers have one thread
        each. None to run the jobs here, one after the other.
    machines: "any" to have each job run once; "each" to have every machine run every job.
    workers: patterns of the names of Dask workers, such as "gpu-*"; None for all.
    resources: what a Dask worker must offer, such as {"GPU": 1}.
    keep_going: run the others where no machine can run a job, instead of raising.
    since: a folder of earlier results of these jobs; of them those run again whose frameworks, or
        crossbench, have other versions here. So a new folder holds what has changed.
    progress: called with a short text as something begins or ends.
    on_update: called with the tasks whenever one of them changes, and at least once a second.

    Returns a task for each job (with "each" for each job and machine) with its state. Raises
    SpecError or ResultsError (each one line) before anything is run if a job's arguments are wrong,
    no machine can run it, or the directory is not this sweep's; ResultsError later if a result
    cannot be written. At Ctrl-C all jobs are stopped.
    """
    made = make_jobs(jobs)
    each = check_option("machines", machines) == "each"
    names = () if workers is None else check_option("workers", workers)
    offers = {} if resources is None else check_option("resources", resources)
    earlier = {} if since is None else unchanged(Folder(since), made)
    folder = Folder(directory)
    with folder.held(), run_directory() as temporary:
        folder.check(made)
        stop = temporary / "goes-on"
        with _connected(executor, names, offers, each, stop) as pool:
            progress(f"{_count(len(made))}: asking the machines what they can run")
            problems = _survey(pool, made)
            _check_runnable(problems, keep_going)
            sweeping = _Sweep(folder, pool, str(stop), progress, on_update, earlier)
            sweeping.begin(_plan(made, problems, each))
            return sweeping.finish()


@dataclass(frozen=True)
class Planned:
    """Hold a job that is to run, on one of the hosts; None: on any.

    name: of its results file. problem: why it cannot run.
    """

    name: str
    job: Job
    hosts: list[str] | None = None
    problem: str | None = None


def _plan(jobs: Sequence[Job], problems: Problems, each: bool) -> list[Planned]:
    """Return what is to run where: each job once, or once on each machine."""
    planned = []
    for job in jobs:
        found = problems[job.name]
        able = [host for host, problem in found.items() if problem is None]
        if each:
            planned += [
                Planned(f"{job.name}@{host}", job, [host], problem)
                for host, problem in found.items()
            ]
        elif able:
            planned.append(Planned(job.name, job, None if len(able) == len(found) else able))
        else:
            planned.append(Planned(job.name, job, None, next(iter(found.values()))))
    return planned


def _survey(pool: Machines, jobs: Sequence[Job]) -> Problems:
    """Return what the hosts can run; SpecError if a host's versions are not those of this one."""
    keys = {job.name: can_run_key(job.arguments) for job in jobs}
    distinct = {keys[job.name]: job.arguments for job in jobs}
    surveys, here = pool.survey(list(distinct.values())), versions()
    for survey in surveys:
        if survey.versions != here:
            raise SpecError(
                f"{survey.host} has {survey.versions}, but here is {here}: install the same there"
            )
    return {name: {s.host: s.problems[key] for s in surveys} for name, key in keys.items()}


def _check_runnable(problems: Problems, keep_going: bool) -> None:
    """Raise SpecError if no machine can run one of the jobs; with keep_going if none can be run."""
    impossible = [name for name, found in problems.items() if None not in found.values()]
    if not impossible or (keep_going and len(impossible) < len(problems)):
        return
    found = problems[impossible[0]]
    host, problem = next(iter(found.items()))
    others = f", and {_count(len(impossible) - 1)} more" if len(impossible) > 1 else ""
    where = f"no machine can run it; {host}" if len(found) > 1 else "it cannot run here"
    hint = "" if len(impossible) == len(problems) else " (--keep-going runs the other jobs)"
    raise SpecError(f"{impossible[0]}{others}: {where}: {problem}{hint}")


@contextmanager
def _connected(
    executor: Executor | Client | Scheduler | None,
    workers: Sequence[str],
    resources: Mapping[str, float],
    each: bool,
    stop: Path,
) -> Iterator[Machines]:
    """Yield the machines of an executor; on exit their jobs are stopped.

    stop: a new file, whose removal also tells jobs on this host to stop.
    """
    stop.touch()
    pool: Machines
    if executor is None or isinstance(executor, Executor):
        if executor is not None and each:
            raise SpecError("machines = each needs a Dask client: an executor has one machine")
        if workers or resources:
            raise SpecError("workers and resources are those of Dask: name its scheduler")
        pool = ExecutorMachines(executor)
    else:
        pool = _dask(executor, workers, resources)
    try:
        yield pool
    finally:
        stop.unlink(missing_ok=True)
        pool.stop()


@dataclass(frozen=True)
class Scheduler:
    """Hold the address of a Dask scheduler, for the command line.

    tls_files: by "tls_ca_file", "tls_cert" and "tls_key"; without them Dask's configuration holds.
    """

    address: str
    tls_files: Mapping[str, str]


def _dask(
    executor: Client | Scheduler, workers: Sequence[str], resources: Mapping[str, float]
) -> Machines:
    """Return the machines of a scheduler. The connection is a new one, made anew where lost."""
    try:
        from distributed import Client

        from .dask_machines import DaskMachines, security
    except ImportError as error:
        raise SpecError(missing("dask", "distributed") or str(error)) from None
    if isinstance(executor, Scheduler):
        known = security(executor.tls_files)
        return DaskMachines(executor.address, known, workers, resources)
    if not isinstance(executor, Client):
        raise SpecError(f"executor must be an Executor or a Dask client, not {shown(executor)}")
    address = executor.scheduler.address if executor.scheduler else "of the client"
    return DaskMachines(address, executor.security, workers, resources)


@dataclass
class _Sweep:
    """Hold the tasks of a sweep that runs.

    earlier: results files of other jobs that are not to run, by their `result_key`. running: the
    jobs that have not ended, by the names of their tasks. data: the first task that ended of each
    data, by the jobs' data keys. written: when the state was, on the monotonic clock.
    """

    folder: Folder
    pool: Machines
    stop: str
    progress: Callable[[str], None]
    on_update: Update
    earlier: dict[tuple[str | None, str], str]
    tasks: dict[str, Task] = field(default_factory=dict)
    running: dict[str, Job] = field(default_factory=dict)
    data: dict[str, Task] = field(default_factory=dict)
    ended: int = 0
    written: float = 0.0

    def begin(self, planned: Iterable[Planned]) -> None:
        """Submit what the folder does not have."""
        results = {result_key(name): name for name in self.folder.results()}
        known = self.folder.read_state(missing_ok=True)
        before = {task.name: task for task in known if task.state in ENDED}
        for plan in planned:
            key = result_key(plan.name)
            if name := results.get(key):
                self.tasks[plan.name] = before.get(name, Task(name, "done"))
                self._same_data(plan.job, self.tasks[plan.name])
                self.ended += 1
                continue
            if name := self.earlier.get(key):
                self.tasks[plan.name] = Task(plan.name, "done", reason=f"unchanged since {name}")
                self.ended += 1
                continue
            self.tasks[plan.name] = Task(plan.name, since=_now())
            if plan.problem:
                self._end(plan.name, "failed", plan.problem)
                continue
            self.running[plan.name] = plan.job
            order = Order(plan.job, self.folder.address, plan.name, self.stop)
            self.pool.submit(order, plan.hosts)
        self._changed(at_once=True)

    def finish(self) -> list[Task]:
        """Wait until all jobs have ended, and return all tasks."""
        try:
            while self.running:
                if event := self.pool.next(EVENT_SECONDS):
                    self._handle(event)
                self._changed()
        finally:
            for name in self.running:
                self.tasks[name].state = "queued"
            self._changed(at_once=True)
        return list(self.tasks.values())

    def _handle(self, event: Event) -> None:
        """Note what happened, unless it is about a job that has ended already."""
        match event:
            case News(words):
                self.progress(words)
            case End(name, outcome) if name in self.running:
                self._keep(name, outcome)
            case Change(name, state, machine) if name in self.running:
                task = self.tasks[name]
                task.state, task.machine, task.since = state, machine, _now()
                if state != "queued":
                    self.progress(f"{name} {state} on {machine}")

    def _keep(self, name: str, outcome: Outcome) -> None:
        """Keep the result of a job, if it has one and its data is that of the others."""
        if outcome.problem is not None:
            self._end(name, "failed", outcome.problem, outcome)
            return
        task = self.tasks[name]
        task.machine, task.sha256 = outcome.machine, outcome.sha256
        if different := self._same_data(self.running[name], task):
            self.folder.remove(name)
            self._end(name, "failed", different, outcome)
            return
        if outcome.content is not None:
            self.folder.write(name, outcome.content)
        self._end(name, "incomplete" if outcome.incomplete else "done", outcome.incomplete, outcome)

    def _same_data(self, job: Job, task: Task) -> str | None:
        """Return how the data differs from that of the first job that has the same; or None."""
        if task.sha256 is None:
            return None
        first = self.data.setdefault(job.data_key, task)
        if first.sha256 == task.sha256:
            return None
        return (
            f"its data differs from that of {first.name}: SHA-256 {task.sha256[:12]} on "
            f"{task.machine}, {(first.sha256 or '')[:12]} on {first.machine}"
        )

    def _end(
        self, name: str, state: State, reason: str | None, outcome: Outcome | None = None
    ) -> None:
        task = self.tasks[name]
        self.running.pop(name, None)
        task.state, task.reason, task.since = state, reason, _now()
        if outcome is not None:
            task.machine, task.seconds = outcome.machine or task.machine, outcome.seconds
        self.ended += 1
        where = f" on {task.machine}" if task.machine else ""
        why = f": {reason}" if reason else ""
        self.progress(
            f"{name} {state}{where}{why} ({self.ended} of {_count(len(self.tasks))} ended)"
        )

    def _changed(self, at_once: bool = False) -> None:
        """Show the tasks, and write them now and then."""
        self.on_update(list(self.tasks.values()))
        if at_once or time.monotonic() - self.written > STATE_SECONDS:
            self.folder.write_state(self.tasks.values())
            self.written = time.monotonic()


def _count(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs:,} jobs"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
