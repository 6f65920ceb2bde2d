"""Handles Ctrl-C, SIGTERM and SIGHUP on the command line.

A script that calls crossbench.run keeps its own signal handlers. An ignored signal (SIGHUP under
nohup) stays ignored. The command line imports this module first, so it must not import slow ones.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CLEANUP_SECONDS = 5.0
"""Seconds after the first signal in which further ones are ignored, while the run cleans up."""

Handler = Callable[[int, FrameType | None], None]


class Stopped(KeyboardInterrupt):
    """Raised in the main thread by the first signal; number: the signal's."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = number


def exit_at_once() -> None:
    """Let each signal end the process at once, without a traceback, until `raise_on_signal`."""
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit)


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """Inside this context, let the first signal raise Stopped, so that the run can clean up.

    Signals within CLEANUP_SECONDS of the first are ignored; a later one ends the process at once.
    Does nothing if exit_at_once was not called, as in a script.
    """
    started: list[float] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if not started:
            started.append(time.monotonic())
            raise Stopped(number)
        if time.monotonic() - started[0] > CLEANUP_SECONDS:
            _exit(number, frame)

    _replace(_exit, stop)
    try:
        yield
    finally:
        if not started:
            _replace(stop, _exit)


@contextmanager
def postponed_signals() -> Iterator[None]:
    """Let a signal that comes inside this context come at its end.

    For what must not be left half done: a process that is started, and that nobody knows yet. Does
    nothing outside the main thread, where Python handles no signals.
    """
    handlers: dict[signal.Signals, Handler] = {}
    came: list[int] = []
    try:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if callable(handler := signal.getsignal(number)):
                    handlers[number] = handler
                    signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def exit_message(number: int) -> str:
    """Return the line for the standard error of a process that this signal ends."""
    what = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    return f"crossbench: {what}; all worker processes are stopped"


def _replace(old: Handler, new: Handler) -> None:
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is old:
            signal.signal(number, new)


def _exit(number: int, frame: FrameType | None) -> None:
    os.write(2, f"{exit_message(number)}\n".encode())
    os._exit(128 + number)
