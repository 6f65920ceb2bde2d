"""A worker whose parent is gone ends at once, whatever it is doing. Imports nothing heavy: a worker
begins with it.
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
    """Have this process killed when the process `parent`, which started it, is gone.

    Linux sends the signal when the thread that started the process ends: a WorkerProcess is used
    and ended by the thread that made it, so that thread outlives it. The signal needs no thread
    here, so it comes also while a framework holds the GIL.
    """
    if not (sys.platform == "linux" and ask_for_signal()):
        watch_parent(parent)
    if os.getppid() != parent:  # it was gone before this was asked for
        os._exit(1)


def ask_for_signal() -> bool:
    """Ask the kernel for SIGKILL at the parent's death; return whether it will."""
    return ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0


def watch_parent(parent: int, interval: float = 1.0) -> None:
    """Look in a thread, every so many seconds, whether the parent is still there."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
