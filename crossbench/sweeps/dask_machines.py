"""Runs jobs on the machines of a Dask scheduler.

The scheduler hands them out, also those of workers that died, and is connected to again.
"""

from __future__ import annotations

import fnmatch
import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from distributed import Client, Reschedule, Security, get_worker
from distributed.core import Status

from ..inputs.checks import short_error
from ..inputs.errors import SpecError
from .job_process import STOP_SECONDS, Cancelled, Outcome, Report, run_job, versions
from .machines import Arguments, Planned, Survey, survey

CONNECT_SECONDS = 20.0
RECONNECT_SECONDS = 600.0
"""How long a scheduler that is gone may take to come back."""
FIRST_WORKER_SECONDS = 120.0
LOOK_SECONDS = 5.0
"""How often to look which workers there are."""
GONE_SECONDS = 60.0
"""How long all workers of a host may be gone: one that died is started again."""


@contextmanager
def connected(address: str, tls_files: Mapping[str, str]) -> Iterator[Client]:
    """Yield a client of a scheduler; SpecError if it does not answer, or a file does not exist.

    tls_files: by the names that Dask's `Security` has for them; without any Dask's configuration
    holds.
    """
    for name in ("distributed.client", "distributed.core"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is said in a line
    security = _security(tls_files)
    try:
        client = Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError, ImportError) as error:
        raise SpecError(
            f"the Dask scheduler {address} does not answer: {short_error(error)}"
        ) from None
    client._timeout = RECONNECT_SECONDS  # the argument would hold for each of its questions too
    try:
        yield client
    finally:
        client.close(timeout=CONNECT_SECONDS)


def _security(tls_files: Mapping[str, str]) -> Security | None:
    """Return what a client needs for tls://; None, for Dask's configuration, without files."""
    if not tls_files:
        return None
    for file in tls_files.values():
        if not Path(file).is_file():
            raise SpecError(f"the certificate or key {file} does not exist")
    return Security(require_encryption=True, **tls_files)


class DaskMachines:
    """Runs jobs on the workers of a client's scheduler.

    workers: patterns of the workers' names; none for all. resources: what a worker must offer.
    """

    def __init__(
        self, client: Client, workers: Sequence[str], resources: Mapping[str, float]
    ) -> None:
        self.client, self.patterns, self.resources = client, workers, dict(resources)
        self.address = client.scheduler.address if client.scheduler else "of the client"
        self.topic = f"crossbench-{secrets.token_hex(8)}"
        self.addresses: dict[str, set[str]] = {}
        """IP addresses of each host: a worker that is started again has another port."""
        self.seen: dict[str, float] = {}
        """When each host had a worker last."""
        self.looked = 0.0
        self.has_workers = True

    def survey(self, jobs: Sequence[Arguments]) -> list[Survey]:
        self._check_open()
        workers = self._first_workers()
        for address, info in workers.items():
            if info["nthreads"] != 1:
                raise SpecError(
                    f"the worker {info['name']} ({address}) has {info['nthreads']} threads, but a "
                    "machine runs one job at a time: start it with --nthreads 1"
                )
        answers = self.client.run(survey, list(jobs), workers=list(workers), on_error="return")
        hosts: dict[str, str] = {}
        for address, answer in answers.items():
            if not isinstance(answer, Survey):
                raise SpecError(
                    f"the worker {address} cannot be used: {short_error(answer)}: install the "
                    "same crossbench there"
                )
            ip = workers[address]["host"]
            if hosts.setdefault(ip, answer.host) != answer.host:
                raise SpecError(
                    f"{hosts[ip]} and {answer.host} have the same address {ip}: start one worker "
                    "on a machine"
                )
            self.addresses.setdefault(answer.host, set()).add(ip)
        self.seen = dict.fromkeys(self.addresses, time.monotonic())
        return list(answers.values())

    def submit(self, plan: Planned, report: Report) -> Any:
        # each time: a scheduler that was started again does not know who wants to hear of a topic
        self.client.subscribe_topic(self.topic, lambda event: report(*event[1]))
        hosts = plan.hosts
        return self.client.submit(
            dask_job,
            plan.name,
            plan.job.arguments,
            versions(),
            self.topic,
            key=f"{self.topic}-{plan.name}-{secrets.token_hex(4)}",  # a lost one is known as lost
            pure=False,
            workers=None if hosts is None else [ip for h in hosts for ip in self.addresses[h]],
            resources=self.resources or None,
        )

    def look(self) -> tuple[str | None, set[str]]:
        now = time.monotonic()
        self._check_open()
        if self.client.status != "running":
            self.seen, self.looked = dict.fromkeys(self.seen, now), 0.0
            return "the scheduler does not answer: waiting for it", set()
        if now - self.looked > LOOK_SECONDS:
            self.looked = now
            with suppress(OSError):
                workers = self.client.scheduler_info(n_workers=-1)["workers"]
                self.has_workers = bool(workers)
                there = {info["host"] for info in workers.values()}
                self.seen |= {host: now for host, own in self.addresses.items() if own & there}
        gone = {host for host, last in self.seen.items() if now - last > GONE_SECONDS}
        return (None if self.has_workers else "no worker is there: waiting for one"), gone

    def stop(self, futures: Iterable[Any]) -> None:
        with suppress(Exception):  # a worker or the scheduler is gone
            if left := list(futures):
                self.client.cancel(left)
                deadline = time.monotonic() + 2 * STOP_SECONDS
                while time.monotonic() < deadline and any(
                    self.client.run(runs_jobs_of, self.topic, on_error="ignore").values()
                ):
                    time.sleep(0.2)
            self.client.unsubscribe_topic(self.topic)

    def _check_open(self) -> None:
        """Raise SpecError if the client has given up its scheduler, or was closed."""
        if self.client.status in ("closing", "closed"):
            raise SpecError(
                f"the Dask scheduler {self.address} is gone: start it, and give the same command "
                "again"
            )

    def _first_workers(self) -> dict[str, Any]:
        """Wait for the first workers that may be used; SpecError if there is none."""
        deadline = time.monotonic() + FIRST_WORKER_SECONDS
        while not (workers := self._workers()):
            if time.monotonic() > deadline:
                raise SpecError(
                    f"the scheduler {self.address} has no worker{self._wanted()}: start one"
                )
            time.sleep(0.5)
        return workers

    def _workers(self) -> dict[str, Any]:
        """Return the workers that may be used, by address."""
        return {
            address: info
            for address, info in self.client.scheduler_info(n_workers=-1)["workers"].items()
            if not self.patterns
            or any(fnmatch.fnmatchcase(str(info["name"]), pattern) for pattern in self.patterns)
            if all(info["resources"].get(k, 0) >= v for k, v in self.resources.items())
        }

    def _wanted(self) -> str:
        """Return which workers were asked for, in words."""
        named = f" named {', '.join(self.patterns)}" if self.patterns else ""
        offers = ", ".join(f"{k}={v:g}" for k, v in self.resources.items())
        return f"{named}{f' with {offers}' if offers else ''}"


def dask_job(name: str, arguments: Arguments, wanted: str, topic: str) -> Outcome:
    """Run a job in a Dask worker, until Dask takes it away or the worker closes."""
    worker = get_worker()
    key = worker.get_current_task()

    def cancelled() -> bool:
        task = worker.state.tasks.get(key)
        closing = worker.status in (Status.closing, Status.closed, Status.failed)
        return closing or task is None or task.state in ("cancelled", "released", "forgotten")

    try:
        return run_job(
            name, arguments, wanted, cancelled, lambda *words: worker.log_event(topic, words)
        )
    except Cancelled:
        raise Reschedule from None  # to another worker, if it is still wanted


def runs_jobs_of(topic: str, dask_worker: Any) -> bool:
    """Return whether the worker runs a job of the sweep with this topic."""
    return any(topic in str(key) for key in dask_worker.active_threads.values())
