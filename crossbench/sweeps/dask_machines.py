"""Runs jobs on the machines of a Dask scheduler."""

from __future__ import annotations

import contextlib
import fnmatch
import logging
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Security, get_worker
from distributed.core import Status

from ..inputs.checks import short_error
from ..inputs.errors import SpecError
from ..inputs.printable import printable
from .job_process import STOP_SECONDS, Order, Outcome, run_job
from .machines import Arguments, Change, End, Event, News, Survey, survey

CONNECT_SECONDS = 20.0
RECONNECT_SECONDS = 600.0
"""How long a scheduler that is gone may take to come back."""
FIRST_WORKER_SECONDS = 120.0
LOOK_SECONDS = 5.0
"""How often to look which workers there are."""
GONE_SECONDS = 60.0
"""How long all workers that may run a job may be gone: a worker that died is started again."""


class Unreachable(SpecError):
    """Raised when the scheduler does not answer."""


@dataclass
class Submitted:
    """Hold an order that has not ended. addresses: of the workers that may run it; None for all."""

    order: Order
    hosts: Sequence[str] | None
    addresses: list[str] | None
    future: Any = None
    gone_since: float | None = None


class DaskMachines:
    """Runs orders on the workers of a scheduler.

    workers: patterns of the workers' names; none for all. resources: what a worker must offer.
    """

    def __init__(
        self,
        address: str,
        security: Security | None = None,
        workers: Sequence[str] = (),
        resources: Mapping[str, float] | None = None,
    ) -> None:
        self.address, self.security = address, security
        self.patterns, self.resources = workers, dict(resources or {})
        self.topic = f"crossbench-{secrets.token_hex(8)}"
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.submitted: dict[str, Submitted] = {}
        self.hosts: dict[str, str] = {}
        """Names of the hosts by the addresses of their workers."""
        self.lost: set[str] = set()
        """Names of the orders that the scheduler no longer has."""
        self.looked = 0.0
        self.has_workers = True
        self.lost_since: float | None = None
        for name in ("distributed.client", "distributed.core"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is said in a line
        self.client = self._connect()

    def survey(self, jobs: Sequence[Arguments]) -> list[Survey]:
        """Return what each worker says of itself; SpecError if none can be used."""
        deadline = time.monotonic() + FIRST_WORKER_SECONDS
        while not (workers := self._workers()):
            if time.monotonic() > deadline:
                raise SpecError(
                    f"the scheduler {self.address} has no worker{self._wanted()}: start one"
                )
            time.sleep(0.5)
        for address, info in workers.items():
            if info["nthreads"] != 1:
                raise SpecError(
                    f"the worker {info['name']} ({address}) has {info['nthreads']} threads, but a "
                    "machine runs one job at a time: start it with --nthreads 1"
                )
        answers = self.client.run(survey, list(jobs), workers=list(workers), on_error="return")
        for address, answer in answers.items():
            if not isinstance(answer, Survey):
                raise SpecError(
                    f"the worker {address} cannot be used: {short_error(answer)}: install the "
                    "same crossbench there"
                )
            self.hosts[address] = answer.host
        return list(answers.values())

    def submit(self, order: Order, hosts: Sequence[str] | None) -> None:
        self.submitted[order.name] = Submitted(order, hosts, self._addresses(hosts))
        self._submit(self.submitted[order.name])

    def next(self, timeout: float) -> Event | None:
        """Return the next event; None if there is none for `timeout` seconds.

        Connects again if the connection was lost, and submits again what was lost with it.
        """
        if self.client.status != "running" or self.lost_since is not None:
            return self._reconnect()
        while self.lost:
            if submitted := self.submitted.get(self.lost.pop()):
                self._submit(submitted)
        if time.monotonic() - self.looked > LOOK_SECONDS:
            self.looked = time.monotonic()
            with contextlib.suppress(OSError, TimeoutError):  # `_reconnect` sees to it
                self._look_for_workers()
                self._look_for_gone()
        try:
            return self.events.get(timeout=timeout)
        except Empty:
            return None

    def stop(self) -> None:
        """Cancel all jobs, and wait until their workers have stopped them."""
        futures = [s.future for s in list(self.submitted.values()) if s.future is not None]
        self.submitted.clear()
        if futures and self.client.status == "running":
            with contextlib.suppress(Exception):  # a worker or the scheduler is gone
                self.client.cancel(futures, force=True)
                deadline = time.monotonic() + 2 * STOP_SECONDS
                while time.monotonic() < deadline and any(
                    self.client.run(runs_jobs_of, self.topic, on_error="ignore").values()
                ):
                    time.sleep(0.2)
        self.client.close(timeout=CONNECT_SECONDS)

    def _connect(self) -> Client:
        try:
            client = Client(
                self.address,
                security=self.security,
                timeout=CONNECT_SECONDS,
                set_as_default=False,
                name="crossbench",
            )
        except (OSError, ValueError, TypeError, RuntimeError, ImportError) as error:
            raise Unreachable(
                f"the Dask scheduler {self.address} does not answer: {short_error(error)}"
            ) from None
        client.subscribe_topic(self.topic, self._reported)
        return client

    def _reconnect(self) -> Event | None:
        """Try to connect again, and return what is to be said; Unreachable if it takes too long."""
        if self.lost_since is None:
            self.lost_since = time.monotonic()
            for name in list(self.submitted):
                self._lose(name)
                self.events.put(Change(name, "queued"))
            return News("the scheduler does not answer: waiting for it")
        if self.client.status == "running":
            self.lost_since = None
            self.client.subscribe_topic(self.topic, self._reported)
            return News("the scheduler is back")
        if time.monotonic() - self.lost_since > RECONNECT_SECONDS:
            raise Unreachable(
                f"the Dask scheduler {self.address} is gone: start it, and give the same command "
                "again"
            )
        if self.client.status == "closed":
            with contextlib.suppress(Unreachable):
                self.client = self._connect()
        time.sleep(0.5)
        return None

    def _submit(self, submitted: Submitted) -> None:
        """Hand an order to the scheduler; with a new key, because a lost one is known as lost."""
        order = submitted.order
        future = self.client.submit(
            dask_job,
            order,
            self.topic,
            key=f"crossbench_job-{order.name}-{self.topic}-{secrets.token_hex(4)}",
            pure=False,
            workers=submitted.addresses,
            resources=self.resources or None,
        )
        submitted.future = future
        future.add_done_callback(lambda future: self._ended(order.name, future))

    def _ended(self, name: str, future: Any) -> None:
        """Tell how a job ended. Dask calls this in a thread of its own, one job after the other."""
        submitted = self.submitted.get(name)
        if submitted is None or submitted.future is not future:
            return  # stopped, or submitted again
        status = future.status
        if status == "error":
            self._forget(name)
            self.events.put(End(name, Outcome("", _words(future.exception()))))
        elif status == "finished":
            try:
                outcome: Outcome = future.result(timeout=RECONNECT_SECONDS)
            except Exception:  # the connection was lost meanwhile
                self._lose(name)
                return
            self._forget(name)
            self.events.put(End(name, outcome))
        else:
            self._lose(name)

    def _lose(self, name: str) -> None:
        """Note that the scheduler no longer has an order: `next` submits it again."""
        if submitted := self.submitted.get(name):
            submitted.future = None
            self.lost.add(name)

    def _forget(self, name: str) -> None:
        submitted = self.submitted.pop(name, None)
        if submitted is not None and submitted.future is not None:
            submitted.future.release()

    def _reported(self, event: tuple[float, Any]) -> None:
        """Pass on what a worker says of its job."""
        words = event[1]
        if isinstance(words, dict) and words.get("name") in self.submitted:
            self.events.put(Change(words["name"], words["state"], words["machine"]))

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

    def _addresses(self, hosts: Sequence[str] | None) -> list[str] | None:
        """Return the addresses of the workers that may run what is for these hosts."""
        if hosts is None and not self.patterns:
            return None
        return [address for address, host in self.hosts.items() if hosts is None or host in hosts]

    def _look_for_workers(self) -> None:
        """Say when the last worker is gone, and when there is one again."""
        some = self.client.scheduler_info(n_workers=1)["n_workers"] > 0
        if some == self.has_workers:
            return
        self.has_workers = some
        words = "a worker is there again" if some else "no worker is there: waiting for one"
        self.events.put(News(words))
        if not some:
            for name in list(self.submitted):
                self.events.put(Change(name, "queued"))

    def _look_for_gone(self) -> None:
        """Hand jobs whose workers are gone to new ones of their hosts; else let them fail."""
        if all(submitted.addresses is None for submitted in list(self.submitted.values())):
            return
        now, workers = time.monotonic(), self._workers()
        self.hosts = {a: host for a, host in self.hosts.items() if a in workers}
        if new := [address for address in workers if address not in self.hosts]:
            answers = self.client.run(survey, [], workers=new, on_error="return")
            self.hosts |= {a: s.host for a, s in answers.items() if isinstance(s, Survey)}
        for name, submitted in list(self.submitted.items()):
            if submitted.addresses is None or set(submitted.addresses) & set(workers):
                submitted.gone_since = None
            elif addresses := self._addresses(submitted.hosts):
                before, submitted.addresses = submitted.future, addresses
                self._submit(submitted)
                if before is not None:
                    before.cancel()
            elif submitted.gone_since is None:
                submitted.gone_since = now
            elif now - submitted.gone_since > GONE_SECONDS:
                where = ", ".join(submitted.hosts or self.patterns)
                if submitted.future is not None:
                    submitted.future.cancel()
                self._forget(name)
                self.events.put(End(name, Outcome("", f"{where} is gone")))


def security(tls_files: Mapping[str, str]) -> Security | None:
    """Return what a client needs for tls://; None, for Dask's configuration, without files."""
    if not tls_files:
        return None
    names = {"tls_cert": "tls_client_cert", "tls_key": "tls_client_key"}
    for file in tls_files.values():
        if not Path(file).is_file():
            raise SpecError(f"the certificate or key {file} does not exist")
    files = {names.get(name, name): file for name, file in tls_files.items()}
    return Security(require_encryption=True, **files)


def dask_job(order: Order, topic: str) -> Outcome:
    """Run an order in a Dask worker, until Dask takes it away or the worker closes."""
    worker = get_worker()
    key = worker.get_current_task()

    def cancelled() -> bool:
        task = worker.state.tasks.get(key)
        closing = worker.status in (Status.closing, Status.closed, Status.failed)
        return closing or task is None or task.state in ("cancelled", "released", "forgotten")

    def report(state: str) -> None:
        words = {"name": order.name, "state": state, "machine": socket.gethostname()}
        worker.log_event(topic, words)

    return run_job(order, cancelled, report)


def runs_jobs_of(topic: str, dask_worker: Any) -> bool:
    """Return whether the worker runs a job of the sweep with this topic."""
    return any(topic in str(key) for key in dask_worker.active_threads.values())


def _words(error: BaseException | None) -> str:
    """Return why Dask could not run a job, in a line."""
    if type(error).__name__ == "KilledWorker":
        return "each worker that ran it died"
    return printable(short_error(error) if error else "Dask does not say why")
