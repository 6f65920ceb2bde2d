"""Implements the command line, `python -m crossbench`: finds the command and runs it.

Exit status:
0: everything requested ran and agreed.
1: something in the table or in doctor --check failed or disagreed, compare --fail-above found a
   slower cell, or a results file could not be read by site or may not be published (check).
2: wrong arguments or an unusable file, and nothing was run; or the results could not be written to
   their file, or, without a file, not printed.
130, 143, 129: Ctrl-C, SIGTERM, SIGHUP.
A closed pipe (`| head`) does not change the status.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from . import commands
from .host import signals
from .inputs.errors import CrossbenchError
from .inputs.printable import printable
from .terminal.output import standard_streams, write_stderr


@standard_streams()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and return the exit status.

    Without `arguments`, take those of the process, and let SIGINT, SIGTERM and SIGHUP stop it.
    """
    if arguments is None:
        signals.exit_at_once()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        name = words.pop(0) if words and words[0] in commands.NAMES else "run"
        return commands.find(name)(words)
    except CrossbenchError as error:
        write_stderr(f"crossbench: {printable(str(error), 2000)}")
        return 2
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, signals.Stopped) else signals.STOP_SIGNALS[0]
        write_stderr(signals.exit_message(number))
        if arguments is None:
            _leave(128 + number)
        return 128 + number


def _leave(status: int) -> NoReturn:
    """End the process now: Python would wait for a parity proof still running in a thread."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the stream is closed, or nobody reads it
            stream.flush()
    os._exit(status)
