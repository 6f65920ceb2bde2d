"""The parent's side of a worker: start it, ask it, and learn why it failed."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from typing import Any

from .. import adapters
from ..gpus import find_gpus
from ..machine import usable_cpus
from .worker import Reply, Task

# read by OpenMP, OpenBLAS and MKL when they are loaded
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerFailure(Exception):
    """The worker raised, died or hung: str() is the reason in a line."""

    def __init__(
        self, reason: str, traceback: str | None = None, unavailable: bool = False
    ) -> None:
        super().__init__(reason)
        self.traceback = traceback
        self.unavailable = unavailable


class WorkerProcess:
    """A process of its own for a task; a context manager that ends it."""

    def __init__(self, task: Task, timeout: float, show: bool = False) -> None:
        """timeout: seconds for each answer. show: pass on what the process prints."""
        self.timeout = timeout
        self.log = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-c", _bootstrap(task.job.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if show else self.log,
            env=_environment(task),
            start_new_session=True,  # Ctrl-C reaches the parent alone, which ends the workers
        )
        self.replies: queue.Queue[Reply | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._send(task)

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def ask(self, request: str, *arguments: Any) -> Any:
        """The value of a Worker method, waited for without using a core; or WorkerFailure."""
        self._send((request, arguments))
        try:
            reply = self.replies.get(timeout=self.timeout)
        except queue.Empty:
            self.kill()
            raise WorkerFailure(f"no answer within {self.timeout:g} s (timeout)") from None
        if reply is None:
            raise WorkerFailure(self._death(), self._printed())
        if reply.error is not None:
            raise WorkerFailure(reply.error, reply.traceback, reply.unavailable)
        return reply.value

    def kill(self) -> None:
        """End the process and what it started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _send(self, message: Any) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died: the listener says so
            pickle.dump(message, self.process.stdin)
            self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with suppress(Exception):  # the end of the pipe, in the middle of a reply or not
            while True:
                self.replies.put(pickle.load(self.process.stdout))
        self.replies.put(None)

    def _death(self) -> str:
        status = self.process.wait()
        how = f"exited with status {status}"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
            if -status == signal.SIGKILL:
                how += " (out of memory?)"
        last = [line for line in self._printed().splitlines() if line.strip()][-1:]
        return f"the worker process {how}" + "".join(f": {line.strip()}" for line in last)

    def _printed(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")


def _bootstrap(threads: int) -> str:
    """The worker's program. The affinity is set before anything that starts threads is imported;
    the path is the parent's, so a script needs no __main__ guard and no installed package.
    """
    return (
        "import os, sys\n"
        f"sys.path[:] = {[str(entry) for entry in sys.path]!r}\n"
        "if hasattr(os, 'sched_setaffinity'):\n"
        f"    os.sched_setaffinity(0, {usable_cpus()[:threads]!r})\n"
        "from crossbench.engine.worker import main\n"
        "main()\n"
    )


def _environment(task: Task) -> dict[str, str]:
    """Return the user's environment, over what the adapter would like and under what the
    measurement needs.
    """
    job, adapter = task.job, adapters.get(task.framework)
    return (
        adapter.environment(job.device, job.threads)
        | os.environ
        | adapter.required_environment(job.device)
        | ({} if task.gpu is None else find_gpus().environment(task.gpu))
        | dict.fromkeys(THREAD_VARIABLES, str(job.threads))
    )
