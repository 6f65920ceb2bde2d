"""The standard output and error of a command: full, closed, or with few characters.

Nothing here ends in a traceback after a measurement of minutes.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from .errors import OutputError

PLAIN = {"×": "x", "–": "-", "→": ">", "‖": "|", "…": "~", "²": "2", "±": "~"}
"""One character for one, so that the columns of a table stay where they are."""


@contextmanager
def standard_streams() -> Iterator[None]:
    """Prepare both for a command, and leave nothing in them that fails when Python ends.

    Characters that an encoding lacks are replaced. A standard error that is closed is /dev/null.
    """
    codecs.register_error("plain", _plain)
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                _flush_or_drop(stream)


def show(text: str) -> None:
    """Print on the standard output, at once; OutputError where that takes nothing.

    A reader that has closed the pipe, such as `head`, has seen enough.
    """
    if sys.stdout is None:
        raise OutputError("the standard output is closed")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _drop(sys.stdout)
    except OSError as error:
        _drop(sys.stdout)
        raise OutputError(f"the standard output takes nothing: {error.strerror}") from None


def tell(line: str) -> None:
    """Print a line on the standard error, where that takes it."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Handle what an encoding lacks, as codecs.register_error describes."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in lacking), error.end


def _open_closed() -> None:
    """Open what the caller has closed, so that no file gets its number, and what other libraries
    print there. sys.stdout stays None: then nobody sees the table, and `show` says so.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115, it lives as long as the process


def _flush_or_drop(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _drop(stream)


def _drop(stream: TextIO) -> None:
    """Let what is left in the stream, and what comes, go nowhere: Python flushes it at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
