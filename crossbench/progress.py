"""Shows the progress of a run on the standard error.

On a terminal it is one line that is rewritten; elsewhere each piece of work gets a line. No
background thread updates it, because that would disturb the measurement.
"""

from __future__ import annotations

from contextlib import suppress

from tqdm import tqdm

from .output import write_stderr
from .printable import printable


class ProgressLine:
    """Prints each piece of work as it begins: call it with a short text.

    A context manager: on exit it clears the line.
    """

    def __enter__(self) -> ProgressLine:
        tqdm.monitor_interval = 0  # otherwise tqdm starts a thread
        self.line = tqdm(bar_format="{desc} (at {elapsed})", leave=False, disable=None)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal is gone
            self.line.close()

    def __call__(self, what: str) -> None:
        if self.line.disable:  # not a terminal
            write_stderr(f"crossbench: {printable(what)}")
        with suppress(OSError):
            self.line.set_description_str(printable(what))
