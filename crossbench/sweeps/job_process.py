"""Runs one job on this machine: `crossbench.run` in a process of its own, one at a time on a host.

`run_job` starts `python -m crossbench.sweeps.job_process`, whose standard input says what to run.
Both ends are here.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import __version__
from ..benchmark import run
from ..engine.orphan import end_with_parent
from ..host import signals
from ..host.run_directory import run_directory
from ..inputs.errors import CrossbenchError, SpecError
from ..inputs.printable import printable
from ..results.comparison import Comparison, load
from ..results.file import try_lock
from .folder import Folder
from .jobs import Job

HOST_LOCK = Path("/tmp/crossbench-host.lock")
"""Locked by the job that runs on this host, whichever user and sweep it belongs to. TMPDIR may
differ among them."""
POLL_SECONDS = 0.2
STOP_SECONDS = 20.0
"""How long a stopped job may take to stop its worker processes."""
WAITS, RUNS = "waits", "runs"


@dataclass(frozen=True)
class Outcome:
    """Hold how a job ended, as it comes back from the machine that ran it.

    machine: the host's name. problem: why there is no results file, in a line. incomplete: why some
    rows of it are missing. content: the results file; None if the machine wrote it to the sweep's
    folder itself. sha256: of the data. seconds: that the job took.
    """

    machine: str
    problem: str | None = None
    incomplete: str | None = None
    content: bytes | None = None
    sha256: str = ""
    seconds: float = 0.0


class Cancelled(Exception):
    """Raised when a job is to stop."""


@dataclass(frozen=True)
class Order:
    """Say what `run_job` is to do.

    folder: where the machine itself writes the results file, a URL; None to send it back. stop: a
    file of the client's host, which is there as long as the sweep goes on; client: that host.
    versions: those of the client.
    """

    job: Job
    folder: str | None
    name: str
    stop: str
    client: str = field(default_factory=socket.gethostname)
    versions: str = field(default_factory=lambda: versions())


def versions() -> str:
    """Return the versions that client and machines must share."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"crossbench {__version__}, Python {python}"


def run_job(
    order: Order,
    cancelled: Callable[[], bool] = lambda: False,
    report: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run the job when no other runs on this host, and return how it ended.

    cancelled: asked several times a second whether to stop. report: called with WAITS and RUNS.
    Raises Cancelled when the job was stopped.
    """
    machine = socket.gethostname()
    if order.versions != versions():
        return Outcome(machine, f"it has {versions()}, the client {order.versions}")
    is_over = _is_over(order, cancelled)
    try:
        with _host_lock(is_over, report) as lock:
            started = time.monotonic()
            outcome = _run(order, machine, lock, is_over)
    except (OSError, CrossbenchError) as error:
        return Outcome(machine, printable(str(error)))
    return replace(outcome, seconds=time.monotonic() - started)


def _is_over(order: Order, cancelled: Callable[[], bool]) -> Callable[[], bool]:
    """Return what tells whether to stop: also that the client, on this host, is gone."""
    here = order.client == socket.gethostname() and Path(order.stop).exists()
    return lambda: cancelled() or (here and not Path(order.stop).exists())


@contextmanager
def _host_lock(is_over: Callable[[], bool], report: Callable[[str], None]) -> Iterator[int]:
    """Wait until no other job runs on this host, and yield the lock, an open file descriptor.

    The job's process inherits it: the lock is free when that one has ended, even if this process is
    killed before.
    """
    descriptor = _open_lock()
    try:
        if not _try_host_lock(descriptor):
            report(WAITS)
            while not _try_host_lock(descriptor):
                if is_over():
                    raise Cancelled
                time.sleep(POLL_SECONDS)
        report(RUNS)
        yield descriptor
    finally:
        os.close(descriptor)


def _try_host_lock(descriptor: int) -> bool:
    try:
        return try_lock(descriptor)
    except OSError as error:
        raise SpecError(
            f"{HOST_LOCK} cannot be locked ({error.strerror}), so two jobs could run at the same "
            f"time: {HOST_LOCK.parent} must be on a file system with locks"
        ) from None


def _open_lock() -> int:
    """Open the lock file for reading, which is enough for a lock, also on one of another user."""
    with suppress(FileExistsError):
        os.close(os.open(HOST_LOCK, os.O_CREAT | os.O_EXCL | os.O_RDONLY | os.O_NOFOLLOW, 0o644))
    return os.open(HOST_LOCK, os.O_RDONLY | os.O_NOFOLLOW)


def _run(order: Order, machine: str, lock: int, is_over: Callable[[], bool]) -> Outcome:
    """Run the job's process to its end and return what it wrote; Cancelled if it was stopped."""
    with run_directory() as directory:
        file = directory / "results.json"
        arguments = {"machine": machine, **order.job.arguments, "json": str(file)}
        log = directory / "log"
        status = _process(arguments, log, lock, is_over)
        if status:
            return Outcome(machine, _last_line(log) or f"its process ended with status {status}")
        comparison, content = load(file), file.read_bytes()
    if order.folder is not None:
        Folder(order.folder).write(order.name, content)
    return Outcome(
        machine,
        incomplete=incomplete_words(comparison),
        content=content if order.folder is None else None,
        sha256=comparison.data.sha256,
    )


def incomplete_words(comparison: Comparison) -> str | None:
    """Return why rows of a comparison lack or are not ranked, in a line; None if all are there."""
    if comparison.complete:
        return None
    wanted = [r for r in comparison.results if r.cell.named or r.status != "unavailable"]
    missing = [r for r in wanted if not comparison.is_ranked(r)]
    reasons = [f"{r.name}: {r.reason or comparison.doubt(r) or r.status}" for r in missing]
    return printable("; ".join(reasons))


def _process(arguments: dict[str, Any], log: Path, lock: int, is_over: Callable[[], bool]) -> int:
    """Run `crossbench.run` in a new process; return its exit status. log: its standard error."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=[lock],
            start_new_session=True,  # Ctrl-C in the client's terminal is the client's
        )
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(json.dumps({"parent": os.getpid(), "arguments": arguments}).encode())
        while process.poll() is None:
            if is_over():
                raise Cancelled
            time.sleep(POLL_SECONDS)
    finally:
        _stop(process)
    return process.returncode


def _last_line(log: Path) -> str:
    """Return the last line that is not empty, for a message: why a process ended is in it."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    return printable(lines[-1].removeprefix("crossbench: ")) if lines else ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the process in order, so that it stops its worker processes; else kill it."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    """Run what the standard input asks for; exit with 0, or with a line that says why not."""
    order = json.load(sys.stdin)
    end_with_parent(order["parent"])
    signals.exit_at_once()
    try:
        with signals.raise_on_signal():
            run(**order["arguments"])
    except CrossbenchError as error:
        sys.exit(f"crossbench: {printable(str(error), 2000)}")
    except signals.Stopped as stop:
        sys.exit(signals.exit_message(stop.number))


if __name__ == "__main__":
    main()
