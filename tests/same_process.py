"""Answer the requests of a run in the tests' own process, by the real worker: no process is
started, which would import the frameworks again and again.
"""

from __future__ import annotations

import os
import pickle
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from types import SimpleNamespace

import crossbench
from crossbench import adapters
from crossbench.engine.environment import THREAD_VARIABLES, environment
from crossbench.engine.parity import expected as parity_of
from crossbench.engine.process import WorkerProcess
from crossbench.engine.worker import Worker, answer
from crossbench.host.gpus import HIDDEN
from crossbench.inputs.errors import CrossbenchError

KNOWN = TemporaryDirectory(prefix="crossbench tests ")
"""Where the references' tensors are that were computed already."""
ONE_AT_A_TIME = Lock()
"""Held while a request is answered: a framework's settings are those of its process."""
IGNORED = {"TMPDIR", "PATH", *THREAD_VARIABLES, *HIDDEN}
IGNORED_BEGINNINGS = ("JAX_", "XLA_PYTHON_CLIENT_")
"""Environment variables, and beginnings of their names, that need not be as a worker has them."""


class SameProcess(WorkerProcess):
    """Carry out an assignment in this process.

    It has no timeout, and no memory of its own: peak_bytes is 0.
    """

    def __init__(self, assignment, timeout, show=False, proves=False):
        self.timeout, self.closed, self.peak_bytes = timeout, False, 0
        self.process = SimpleNamespace(pid=os.getpid(), poll=lambda: None)
        self.worker = Worker(pickle.loads(pickle.dumps(assignment)))

    def kill(self):
        """Do nothing: each request is over when `ask` returns."""

    def close(self):
        self.closed, self.worker = True, None

    def _send(self, request):
        with ONE_AT_A_TIME:
            self.answer = answer(self.worker, pickle.loads(pickle.dumps(request)))

    def _receive(self):
        return self.answer

    def _peak(self):
        return 0

    def _printed(self):
        return ""


@cache
def _reference(model_bytes):
    folder = Path(KNOWN.name) / sha256(model_bytes).hexdigest()
    return parity_of.compute_reference(pickle.loads(model_bytes), folder)


def known_reference(model, directory=None):
    """Return the tensors of compute_reference, computed once in this process; the directory is
    another one.
    """
    return _reference(pickle.dumps(model))


def start(assignment, timeout, show=False, proves=False):
    """Return a worker in this process, or in one of its own where it ends its process, or needs
    another environment.
    """
    adapter = adapters.get(assignment.framework, assignment.job.variant)
    wanted = environment(assignment).items()
    other = {k for k, v in wanted if k not in IGNORED and os.environ.get(k) != v}
    other = {name for name in other if not name.startswith(IGNORED_BEGINNINGS)}
    alone = other or assignment.gpu is not None or getattr(adapter, "needs_a_process", False)
    kind = WorkerProcess if alone else SameProcess
    return kind(assignment, timeout, show, proves)


def run_job(arguments, log, lock, is_over):
    """Run a sweep's job in this process, and write to the log why it failed."""
    try:
        crossbench.run(**arguments)
    except CrossbenchError as error:
        log.write_text(f"crossbench: {error}\n")
        return 1
    return 0
