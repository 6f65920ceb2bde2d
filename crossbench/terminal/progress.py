"""Shows the progress of a run on the standard error.

On a terminal that is the table so far and what begins, drawn anew as each piece of work begins or
ends; elsewhere each piece of work gets a line. Nothing is drawn while an epoch is timed, and no
thread runs, because that would disturb the measurement.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from ..inputs.printable import printable
from .output import write_stderr

if TYPE_CHECKING:
    from ..results.comparison import Comparison

LINES = 6
"""Last pieces of work and first figures that a terminal shows before there is a table."""


class LiveDisplay:
    """Draws on the standard error; a context manager that clears it on exit.

    live: the picture on a terminal; None elsewhere.
    """

    def __enter__(self) -> Self:
        self.console = Console(stderr=True)
        self.live: Live | None = None
        with ExitStack() as stack:
            if self.console.is_terminal:
                self.live = Live(console=self.console, auto_refresh=False, transient=True)
                with suppress(OSError):
                    stack.enter_context(self.live)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal is gone
            self.stack.close()

    def draw(self, picture: RenderableType) -> None:
        """Draw the picture in the place of the last one, on a terminal."""
        if self.live is not None:
            with suppress(OSError):
                self.live.update(picture, refresh=True)

    def bar(self, words: str, completed: int, total: int | None) -> Progress:
        """Return a bar that shows how much is completed, followed by words."""
        text = TextColumn("{task.description}")
        bar = Progress(BarColumn(20), text, console=self.console, auto_refresh=False)
        bar.add_task(words, total=total, completed=completed)
        return bar


class Display(LiveDisplay):
    """Shows what begins and the table so far."""

    def __init__(self) -> None:
        self.recent = deque[str](maxlen=LINES)
        self.comparison: Comparison | None = None

    def begin(self, what: str) -> None:
        self.recent.append(printable(what))
        if self.live is None:
            write_stderr(f"crossbench: {self.recent[-1]}")
        self._draw()

    def update(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self._draw()

    def _draw(self) -> None:
        if self.live is None:
            return
        line = Text(self.recent[-1] if self.recent else "")
        if self.comparison is None or not any(r.epochs for r in self.comparison.results):
            self.draw(Group(*map(Text, list(self.recent)[:-1]), line))
            return
        from ..report.terminal import renderable

        table = renderable(self.comparison, self.console.width, running=True)
        self.draw(Group(Padding(table, (0, 0, 1, 0)), line))
