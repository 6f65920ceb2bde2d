"""Stop a worker process when its parent is gone, whatever the worker is doing.

Imports nothing heavy, because it is the first module that a worker imports.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent(parent: int) -> None:
    """Have this process stopped as soon as the process `parent`, which started it, is gone.

    Linux sends the signal when the thread that started the process ends. That thread outlives the
    process: it also stops the WorkerProcess that it made. The signal needs no thread in this
    process, so it also works while a framework holds the GIL.
    """
    if not (sys.platform == "linux" and request_death_signal()):
        watch_parent(parent)
    if os.getppid() != parent:  # the parent was gone before the request
        os._exit(1)


def request_death_signal() -> bool:
    """Ask the kernel for SIGKILL at the parent's death; return whether it will."""
    return ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0


def watch_parent(parent: int, interval: float = 1.0) -> None:
    """Start a thread that exits the process when the parent is gone; interval: seconds."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
