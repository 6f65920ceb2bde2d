"""What is going on, on the standard error: one line that is rewritten, or one line each in a log.

No thread ticks meanwhile, so the machine under test is left alone.
"""

from __future__ import annotations

from contextlib import suppress

from tqdm import tqdm

from .output import tell
from .words import clean


class ProgressLine:
    """Called with what begins; a context manager that clears the line at the end."""

    def __enter__(self) -> ProgressLine:
        tqdm.monitor_interval = 0  # else it starts a thread
        self.line = tqdm(bar_format="{desc} (at {elapsed})", leave=False, disable=None)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal is gone
            self.line.close()

    def __call__(self, what: str) -> None:
        if self.line.disable:  # not a terminal
            tell(f"crossbench: {clean(what)}")
        with suppress(OSError):
            self.line.set_description_str(clean(what))
