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
from pathlib import Path
from typing import Any

from ..benchmark import run
from ..engine.orphan import end_with_parent
from ..host import signals
from ..host.run_directory import run_directory
from ..inputs.errors import CrossbenchError, SpecError
from ..inputs.printable import printable
from ..results.comparison import Comparison, decode
from ..results.file import try_lock
from ..version import __version__
from .folder import State, Task

HOST_LOCK = Path("/tmp/crossbench-host.lock")
"""Locked by the job that runs on this host, whichever user and sweep it belongs to. TMPDIR may
differ among them."""
POLL_SECONDS = 0.2
STOP_SECONDS = 20.0
"""How long a stopped job may take to stop its worker processes."""

Report = Callable[[str, State, str], None]
"""Takes what a job, named by its results file, does now, and on which host."""
Outcome = tuple[Task, bytes | None]
"""How a job ended, as it comes back from its machine, and its results file; None without one."""


class Cancelled(Exception):
    """Raised when a job is to stop."""


def versions() -> str:
    """Return the versions that client and machines must share."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"crossbench {__version__}, Python {python}"


def run_job(
    name: str,
    arguments: dict[str, Any],
    wanted: str,
    cancelled: Callable[[], bool],
    report: Report = lambda *_: None,
) -> Outcome:
    """Run a job when no other runs on this host, and return how it ended.

    name: of its results file. arguments: of `crossbench.run`. wanted: the client's `versions`.
    cancelled: asked several times a second whether to stop. report: called when the job waits for
    another one, and when it runs. Raises Cancelled when the job was stopped.
    """
    machine = socket.gethostname()
    task = Task(name, "failed", machine)
    try:
        if versions() != wanted:
            raise SpecError(f"it has {versions()}, the client {wanted}")
        with _host_lock(cancelled, lambda state: report(name, state, machine)) as lock:
            started = time.monotonic()
            try:
                content = _run({"machine": machine, **arguments}, lock, cancelled)
            finally:
                task.seconds = time.monotonic() - started
        comparison = decode(content, f"{name}.json")
    except (OSError, CrossbenchError) as error:
        task.reason = printable(str(error))
        return task, None
    task.reason = incomplete_words(comparison)
    task.state = "incomplete" if task.reason else "done"
    task.sha256 = comparison.data.sha256
    return task, content


@contextmanager
def _host_lock(cancelled: Callable[[], bool], report: Callable[[State], None]) -> Iterator[int]:
    """Wait until no other job runs on this host, and yield the lock, an open file descriptor.

    The job's process inherits it: the lock is free when that one has ended, even if this process is
    killed before.
    """
    descriptor = _open_lock()
    try:
        if not _try_host_lock(descriptor):
            report("waits")
            while not _try_host_lock(descriptor):
                if cancelled():
                    raise Cancelled
                time.sleep(POLL_SECONDS)
        report("runs")
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


def _run(arguments: dict[str, Any], lock: int, cancelled: Callable[[], bool]) -> bytes:
    """Run the job's process to its end and return the results file; SpecError if there is none."""
    with run_directory() as directory:
        file, log = directory / "results.json", directory / "log"
        status = _process(arguments | {"json": str(file)}, log, lock, cancelled)
        if status:
            raise SpecError(_last_line(log) or f"its process ended with status {status}")
        return file.read_bytes()


def _process(arguments: dict[str, Any], log: Path, lock: int, cancelled: Callable[[], bool]) -> int:
    """Run `crossbench.run` in a new process; return its exit status, or raise Cancelled.

    log: its standard error.
    """
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
            if cancelled():
                raise Cancelled
            time.sleep(POLL_SECONDS)
    finally:
        _stop(process)
    return process.returncode


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


def _last_line(log: Path) -> str:
    """Return the last line that is not empty, for a message: why a process ended is in it."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    return printable(lines[-1].removeprefix("crossbench: ")) if lines else ""


def incomplete_words(comparison: Comparison) -> str | None:
    """Return what rows of a comparison lack, in a line; None if it is complete."""
    if comparison.complete:
        return None
    reasons = [
        f"{r.name}: {r.reason or comparison.doubt(r) or r.extra_problem or r.status}"
        for r in comparison.results
        if r.cell.named or r.status != "unavailable"
        if r.extra_problem or not comparison.is_ranked(r)
    ]
    return printable("; ".join(reasons)) or "not every row ran"


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
