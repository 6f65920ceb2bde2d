"""What Ctrl-C, SIGTERM and SIGHUP do where crossbench is the program.

In a script nothing of this happens: its handlers are its own. One that is ignored (SIGHUP under
nohup) stays ignored. Imports nothing heavy: the command line begins with it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECONDS_TO_STOP = 5.0
"""Signals within so many seconds of the first one do not disturb the end that it has begun."""

Handler = Callable[[int, FrameType | None], None]


class Stopped(KeyboardInterrupt):
    """Raised in the main thread by the first signal; number is the signal's."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = number


def exit_at_once() -> None:
    """From here on, let a signal end the process: there is nothing to clean up."""
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit)


@contextmanager
def raised() -> Iterator[None]:
    """Within it, let the first signal raise Stopped, for the run to clean up. After it those within
    SECONDS_TO_STOP do nothing, and a later one ends the process at once.

    Does nothing where exit_at_once was not called: in a script.
    """
    started: list[float] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if not started:
            started.append(time.monotonic())
            raise Stopped(number)
        if time.monotonic() - started[0] > SECONDS_TO_STOP:
            _exit(number, frame)

    _replace(_exit, stop)
    try:
        yield
    finally:
        if not started:
            _replace(stop, _exit)


def line(number: int) -> str:
    """Return what is said on the standard error at the end."""
    what = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    return f"crossbench: {what}; all workers are ended"


def _replace(old: Handler, new: Handler) -> None:
    for number in STOPPING:
        if signal.getsignal(number) is old:
            signal.signal(number, new)


def _exit(number: int, frame: FrameType | None) -> None:
    os.write(2, f"{line(number)}\n".encode())
    os._exit(128 + number)
