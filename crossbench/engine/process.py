"""Start worker processes, ask them, and find out why they fail: the parent's side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from itertools import count
from multiprocessing.connection import Pipe
from typing import Any, get_type_hints

import psutil

from .. import adapters
from ..host.machine import usable_cpus
from ..host.signals import postponed_signals
from ..inputs.printable import printable
from ..workload import Adapter
from . import replies
from .assignment import Assignment
from .environment import TEMPORARY_FOLDER, environment, proof_environment
from .usage import peak_of
from .worker import Worker

INSTALL_SECONDS = 3600.0
"""Seconds that installing a framework may take."""
EXIT_SECONDS = 3.0
"""Seconds that a process has to exit after it closed the connection."""
LIVENESS_SECONDS = 1.0
"""Seconds between two checks that a process that does not answer still runs: a process that it
started may hold its end of the connection open."""
TIMED_OUT = "(timeout)"
"""How the reason of a worker ends that did not answer in time."""
OUTPUT_BYTES = 2**16
"""Bytes that are kept of the end of what a worker printed."""


class WorkerFailure(Exception):
    """A worker raised an error, died or hung; str() is the reason in a line."""

    def __init__(
        self,
        reason: str,
        traceback: str | None = None,
        unavailable: bool = False,
        unsupported: bool = False,
    ) -> None:
        super().__init__(printable(reason))
        self.traceback = traceback
        self.unavailable = unavailable
        self.unsupported = unsupported


class WorkerProcess:
    """Carry out an assignment in a worker process; a context manager that stops the process.

    peak_bytes: the most memory that it and its descendants held, as far as the kernel knows after
    each answer; 0 without Linux.
    The thread that starts the process also stops it: see orphan.py.
    """

    def __init__(
        self,
        assignment: Assignment,
        timeout: float,
        show: bool = False,
        proves: bool = False,
    ) -> None:
        """Start the process; WorkerFailure where it cannot be started.

        timeout: seconds for each answer. show: pass on what the process prints. proves: nothing is
        timed in this process, and others run beside it.
        """
        self.timeout, self.peak_bytes = timeout, 0
        self.closed = self.timed_out = False
        self.unsent: list[Any] = [assignment]
        with ExitStack() as stack:
            try:
                (assignment.data / TEMPORARY_FOLDER).mkdir(exist_ok=True)
                self.log = stack.enter_context(tempfile.TemporaryFile(dir=assignment.data))
                ours, theirs = Pipe()
                self.connection = stack.enter_context(ours)
                with theirs, postponed_signals():
                    self.process = subprocess.Popen(
                        [sys.executable, "-c", _bootstrap(_cpus(assignment, proves))],
                        stdin=theirs.fileno(),
                        stdout=theirs.fileno(),
                        stderr=None if show else self.log,
                        env=(proof_environment if proves else environment)(assignment),
                        start_new_session=True,  # Ctrl-C reaches the parent alone, which stops it
                    )
                    stack.callback(self.kill)
            except Exception as error:  # the machine's or the adapter's
                raise WorkerFailure(f"its process cannot be started: {error}") from error
            stack.pop_all()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: str, *arguments: Any, known_seconds: float = 0.0) -> Any:
        """Return the value of a Worker method; WorkerFailure where there is none.

        known_seconds: what the work is known to take, which the timeout is beyond. Waits without
        using a core. Kills the process after an answer that cannot be read, or if none comes in
        time.
        """
        timeout = self.timeout + known_seconds
        watchdog = threading.Timer(timeout, self._time_out)
        watchdog.daemon = True
        with suppress(RuntimeError):  # no further thread may start: it has all the time it wants
            watchdog.start()
        try:
            self._send((request, arguments))
            reply = replies.decode(self._receive(), _answer_type(request))
        except EOFError:
            if self.timed_out:
                watchdog.join()
                reason = f"no answer within {timeout:.4g} s {TIMED_OUT}"
                raise WorkerFailure(reason) from None
            raise WorkerFailure(self._exit_reason(), self._printed()) from None
        except replies.UnreadableReply as problem:
            self.kill()
            reason = f"its answer to `{request}` cannot be read: {problem}"
            raise WorkerFailure(reason, self._printed()) from None
        finally:
            watchdog.cancel()
        self.peak_bytes = max(self.peak_bytes, self._peak())
        if isinstance(reply, replies.Failure):
            raise WorkerFailure(reply.error, reply.traceback, reply.unavailable, reply.unsupported)
        return reply.value

    def kill(self) -> None:
        """Kill the process and all its descendants at once; any thread may call it."""
        if self.closed:  # its PID may be another process's by now
            return
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGSTOP)  # so that it starts nothing more
        for process in self._descendants():
            with suppress(psutil.Error):
                process.kill()
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Kill the process and close the connection to it."""
        self.kill()
        self.closed = True
        self.connection.close()
        self.log.close()

    def _descendants(self) -> list[psutil.Process]:
        """Return the processes that the worker started, those in other sessions included."""
        if self.process.poll() is not None:
            return []
        with suppress(psutil.Error):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def _peak(self) -> int:
        """Return the peak of the process's memory since it was reset, with its descendants'."""
        pids = [self.process.pid, *(process.pid for process in self._descendants())]
        return sum(peak_of(pid) or 0 for pid in pids)

    def _time_out(self) -> None:
        self.timed_out = True
        self.kill()

    def _send(self, request: tuple[str, tuple[Any, ...]]) -> None:
        messages, self.unsent = [*self.unsent, request], []
        with suppress(ConnectionError):  # the process has died: _receive raises EOFError
            for message in messages:
                self.connection.send(message)

    def _receive(self) -> bytes:
        """Return the next message; EOFError where the process exits or closes the connection."""
        while not self.connection.poll(LIVENESS_SECONDS):
            # once more: its last words may have come before it exited
            if self.process.poll() is not None and not self.connection.poll():
                raise EOFError
        try:
            return self.connection.recv_bytes(replies.MAX_BYTES)
        except OSError:
            if self.connection.readable:  # it ended within a message
                raise EOFError from None
            raise replies.UnreadableReply(
                f"it has more than the {replies.MAX_BYTES:,} bytes allowed"
            ) from None

    def _exit_reason(self) -> str:
        """Return how the process exited, and the last line that it printed."""
        try:
            how = _describe_exit(self.process.wait(EXIT_SECONDS))
        except subprocess.TimeoutExpired:
            self.kill()
            how = "closed the connection to its parent"
        last = [line for line in self._printed().splitlines() if line.strip()][-1:]
        return f"the worker process {how}" + "".join(f": {line.strip()}" for line in last)

    def _printed(self) -> str:
        """Return the end of what the process printed."""
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - OUTPUT_BYTES))
        return self.log.read().decode(errors="replace")


def install(
    name: str, assignment: Assignment, timeout: float, progress: Callable[[str], None]
) -> None:
    """Install what a cell lacks; WorkerFailure if that fails.

    name: the cell's, for the progress.
    """
    if needed := to_install(assignment, timeout):
        progress(f"{name}: {needed}")
        with WorkerProcess(assignment, INSTALL_SECONDS, show=True) as installer:
            installer.ask("install")


def to_install(assignment: Assignment, timeout: float) -> str | None:
    """Return a line that says what `install` would install; None for nothing."""
    adapter = adapters.get(assignment.framework, assignment.job.variant)
    if getattr(type(adapter), "to_install", None) is Adapter.to_install:
        return None  # it installs nothing, so no process has to ask it
    with WorkerProcess(assignment, timeout) as worker:
        needed: str | None = worker.ask("to_install")
        return needed


@cache
def _answer_type(request: str) -> Any:
    """Return the type that the Worker method declares."""
    return get_type_hints(getattr(Worker, request))["return"]


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    hint = " (out of memory?)" if -status == signal.SIGKILL else ""
    try:
        return f"was killed by {signal.Signals(-status).name}{hint}"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-status}"


PROOFS = count()
"""Numbers the processes that prove."""


def _cpus(assignment: Assignment, proves: bool) -> list[int]:
    """Return the CPUs of a process: always the same ones where something is timed, but of proofs,
    several of which run at a time, others for each.
    """
    usable, threads = usable_cpus(), assignment.job.threads
    start = next(PROOFS) * threads % len(usable) if proves else 0
    return (usable[start:] + usable[:start])[:threads]


def _bootstrap(cpus: list[int]) -> str:
    """Return the worker's program.

    It sets the affinity before it imports anything that starts threads. It takes over the parent's
    path, so a script needs no __main__ guard and no installed package.
    """
    return (
        "import os, sys\n"
        f"sys.path[:] = {[str(entry) for entry in sys.path]!r}\n"
        "from crossbench.engine.orphan import end_with_parent\n"
        f"end_with_parent({os.getpid()})\n"
        "if hasattr(os, 'sched_setaffinity'):\n"
        f"    os.sched_setaffinity(0, {cpus!r})\n"
        "from crossbench.engine.worker import main\n"
        "main()\n"
    )
