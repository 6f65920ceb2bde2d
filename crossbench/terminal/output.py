"""Writes to the standard output and error, even if they are full, closed or not Unicode.

A command must not end in a traceback after minutes of measuring.
"""

from __future__ import annotations

import codecs
import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from ..inputs.errors import OutputError

PLAIN = {"×": "x", "–": "-", "→": ">", "‖": "|", "…": "~", "²": "2", "±": "~", "─": "-"}
"""ASCII replacements, one character for one, so that table columns stay aligned."""


@contextmanager
def standard_streams() -> Iterator[None]:
    """Make both streams safe for a command, and flush or drop what is left in them on exit.

    Characters that an encoding lacks are replaced. A closed standard error becomes /dev/null.
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


def terminal_width(stream: TextIO | None) -> int | None:
    """Return the columns of the terminal that the stream is, or None where it is none."""
    return shutil.get_terminal_size().columns if _is_terminal(stream) else None


def takes_colour(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal that shows colours, and NO_COLOR is not set."""
    if not _is_terminal(stream):
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def write_stdout(text: str) -> None:
    """Print on the standard output and flush it; OutputError if it cannot be written to.

    A closed pipe is no error: a reader such as `head` has seen enough.
    """
    if sys.stdout is None:
        raise OutputError("the standard output is closed")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _drop(sys.stdout)
    except OSError as error:
        _drop(sys.stdout)
        raise OutputError(f"cannot write to the standard output: {error.strerror}") from None


def write_stderr(line: str) -> None:
    """Print a line on the standard error and flush it; do nothing if that fails."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks; an error handler for codecs.register_error."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in lacking), error.end


def _open_closed() -> None:
    """Open the standard streams that the caller has closed, on /dev/null.

    Otherwise a file that is opened later gets the number of a stream, and the text that libraries
    print there. sys.stdout stays None, so that `write_stdout` reports that nobody sees the text.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is `number`
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115, open until the process ends


def _flush_or_drop(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _drop(stream)


def _drop(stream: TextIO) -> None:
    """Redirect the stream to /dev/null, so that Python's flush at exit cannot fail."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
