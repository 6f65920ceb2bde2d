"""Runs the jobs of a sweep, on this machine or on several, and keeps each result: `sweep`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ..inputs.checks import short_error, shown
from ..inputs.errors import SpecError
from .folder import ENDED, Folder, ResultKey, State, Task, result_key
from .job_process import Outcome, versions
from .jobs import SweepJob, check_option, make_jobs
from .machines import Machines, Planned, ThisMachine, can_run_key
from .since import unchanged

if TYPE_CHECKING:
    from distributed import Client

EVENT_SECONDS = 1.0
"""How long to wait for an event before the display is drawn anew."""
STATE_SECONDS = 1.0
"""How often the state of a sweep is written at most: that of 10,000 jobs has a megabyte."""
RESULT_SECONDS = 600.0
"""How long the result of a job may take from its machine."""

Update = Callable[[Sequence[Task]], None]
Problems = dict[str, dict[str, str | None]]
"""Why each host cannot run each job, by the names of the jobs and the hosts; None where it can."""


def sweep(
    jobs: Iterable[Mapping[str, Any]],
    directory: str | Path,
    client: Client | None = None,
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
    directory: where the results files come, one for each job; or its URL, such as
        "s3://bucket/sweep", by fsspec.
    client: a Dask client, whose workers have one thread each. None to run the jobs here, one after
        the other.
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
    with folder.held():
        folder.check(made)
        pool = _machines(client, names, offers)
        progress(f"{_count(len(made))}: asking the machines what they can run")
        problems = _survey(pool, made)
        _check_runnable(problems, keep_going)
        planned = _plan(made, problems, each, bool(names))
        return _Sweep(folder, pool, progress, on_update).run(planned, earlier)


def _machines(
    client: Client | None, workers: Sequence[str], resources: Mapping[str, float]
) -> Machines:
    """Return the machines that run the jobs."""
    if client is None:
        if workers or resources:
            raise SpecError("workers and resources are those of Dask: name its scheduler")
        return ThisMachine()
    if not hasattr(client, "scheduler_info") or client.asynchronous:
        raise SpecError(f"client must be a synchronous Dask client, not {shown(client)}")
    from .dask_machines import DaskMachines  # Dask is installed where there is a client

    return DaskMachines(client, workers, resources)


def _survey(pool: Machines, jobs: Sequence[SweepJob]) -> Problems:
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


def _plan(jobs: Sequence[SweepJob], problems: Problems, each: bool, named: bool) -> list[Planned]:
    """Return what is to run where: each job once, or once on each machine.

    named: whether the hosts are those of workers that were asked for by name, and there are others.
    """
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
            any_host = len(able) == len(found) and not named
            planned.append(Planned(job.name, job, None if any_host else able))
        else:
            planned.append(Planned(job.name, job, None, next(iter(found.values()))))
    return planned


@dataclass
class _Sweep:
    """Hold the tasks of a sweep that runs.

    running: what has not ended, and futures: of that, both by the names of the tasks. data: the
    first task that ended of each data, by the jobs' data keys. calls: what other threads have this
    one do. trouble: why no job can run now. written: when the state was, on the monotonic clock.
    """

    folder: Folder
    machines: Machines
    progress: Callable[[str], None]
    on_update: Update
    tasks: dict[str, Task] = field(default_factory=dict)
    running: dict[str, Planned] = field(default_factory=dict)
    futures: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Task] = field(default_factory=dict)
    calls: SimpleQueue[Callable[[], None]] = field(default_factory=SimpleQueue)
    trouble: str | None = None
    ended: int = 0
    written: float = 0.0

    def run(self, planned: Iterable[Planned], earlier: Mapping[ResultKey, str]) -> list[Task]:
        """Run what the folder does not have to its end, and return all tasks.

        earlier: results files of jobs that are not to run, by their `result_key`.
        """
        self._leave_out(planned, earlier)
        try:
            self._begin()
            self._changed(at_once=True)
            while self.running:
                self._next()
                self._changed()
        finally:
            for name in self.running:
                self.tasks[name].state = "queued"
            try:
                self._changed(at_once=True)
            finally:
                self.machines.stop(self.futures.values())
        return list(self.tasks.values())

    def _leave_out(self, planned: Iterable[Planned], earlier: Mapping[ResultKey, str]) -> None:
        """Note what is to run, and what need not: the folder, or earlier results, have it."""
        results = {result_key(name): name for name in self.folder.results()}
        known = self.folder.read_state() or ()
        before = {task.name: task for task in known if task.state in ENDED}
        for plan in planned:
            key = result_key(plan.name)
            if name := results.get(key):
                self.tasks[plan.name] = before.get(name, Task(name, "done"))
                self._same_data(plan.job, self.tasks[plan.name])
                self.ended += 1
            elif name := earlier.get(key):
                self.tasks[plan.name] = Task(plan.name, "done", reason=f"unchanged since {name}")
                self.ended += 1
            else:
                self.tasks[plan.name] = Task(plan.name, since=_now())
                self.running[plan.name] = plan

    def _begin(self) -> None:
        """Submit what can run; the rest fails."""
        for name, plan in list(self.running.items()):
            if plan.problem:
                self._end(Task(name, "failed", reason=plan.problem))
            else:
                self._submit(plan)

    def _submit(self, plan: Planned) -> None:
        future = self.machines.submit(plan, self._later(self._report))
        self.futures[plan.name] = future
        take = self._later(self._take)
        future.add_done_callback(lambda future: take(plan, future, _outcome(plan.name, future)))

    def _later(self, function: Callable[..., None]) -> Callable[..., None]:
        """Return what other threads call instead of a function, to have this one call it."""
        return lambda *arguments: self.calls.put(partial(function, *arguments))

    def _next(self) -> None:
        """Wait for what happens next, and note it."""
        call: Callable[[], None] | None = None
        with suppress(Empty):
            call = self.calls.get(timeout=EVENT_SECONDS)
        self._look()
        if call is not None:
            call()

    def _look(self) -> None:
        """Say whether jobs can run, and let those fail whose hosts are gone."""
        trouble, gone = self.machines.look()
        if trouble != self.trouble:
            self.trouble = trouble
            self.progress(trouble or "a worker is there again")
            for name in self.running if trouble else ():
                self.tasks[name].state = "queued"
        for plan in list(self.running.values()) if gone else ():
            if plan.hosts and gone.issuperset(plan.hosts):
                self.futures[plan.name].cancel()
                self._end(Task(plan.name, "failed", reason=f"{', '.join(plan.hosts)} is gone"))

    def _report(self, name: str, state: State, machine: str) -> None:
        """Note what a job does now."""
        if name in self.running:
            task = self.tasks[name]
            task.state, task.machine, task.since = state, machine, _now()
            self.progress(f"{name} {state} on {machine}")

    def _take(self, plan: Planned, future: Any, outcome: Outcome | None) -> None:
        """Keep what a future gave; submit its job again if that is lost."""
        name = plan.name
        if self.futures.get(name) is not future:
            return  # it has ended, or was submitted again
        if outcome is None:
            self.tasks[name].state = "queued"
            self._submit(plan)
            return
        task, content = outcome
        if different := self._same_data(plan.job, task):
            task = replace(task, state="failed", reason=different)
        elif content is not None:
            self.folder.write(f"{name}.json", content)
        self._end(task)

    def _same_data(self, job: SweepJob, task: Task) -> str | None:
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

    def _end(self, task: Task) -> None:
        """Note how a job ended."""
        del self.running[task.name]
        self.futures.pop(task.name, None)
        task.machine = task.machine or self.tasks[task.name].machine
        self.tasks[task.name] = task
        task.since = _now()
        self.ended += 1
        where = f" on {task.machine}" if task.machine else ""
        why = f": {task.reason}" if task.reason else ""
        self.progress(
            f"{task.name} {task.state}{where}{why} "
            f"({self.ended} of {_count(len(self.tasks))} ended)"
        )

    def _changed(self, at_once: bool = False) -> None:
        """Show the tasks, and write them now and then."""
        self.on_update(list(self.tasks.values()))
        if at_once or time.monotonic() - self.written > STATE_SECONDS:
            self.folder.write_state(self.tasks.values())
            self.written = time.monotonic()


def _outcome(name: str, future: Any) -> Outcome | None:
    """Return how a job ended; None if it is lost: its scheduler is gone, or who had its result."""
    if future.cancelled() or not future.done():
        return None
    if error := future.exception():
        return Task(name, "failed", reason=short_error(error)), None
    try:
        return future.result(timeout=RESULT_SECONDS)
    except Exception:  # the connection was lost meanwhile
        return None


def _count(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs:,} jobs"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
