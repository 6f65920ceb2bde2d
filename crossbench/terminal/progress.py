"""Shows the progress of a run on the standard error.

On a terminal that is the table so far, what begins and the time that is left, drawn anew as each
piece of work begins or ends; elsewhere each piece of work gets a line. Nothing is drawn while an
epoch is timed, and no thread runs, because that would disturb the measurement.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from ..inputs.printable import printable
from ..results.statistics import MIN_ROUNDS
from .output import write_stderr

if TYPE_CHECKING:
    from ..results.comparison import Comparison

FIRST_ROUNDS = 2
"""Rounds that take longer than the others: the first one measures peaks and computes the
reference's losses, in the second one an epoch is whole."""
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
        self.recent, self.clock = deque[str](maxlen=LINES), RoundClock()
        self.comparison: Comparison | None = None

    def begin(self, what: str) -> None:
        self.recent.append(printable(what))
        if self.live is None:
            write_stderr(f"crossbench: {self.recent[-1]}")
        self._draw()

    def update(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.clock.update(comparison)
        self._draw()

    def _draw(self) -> None:
        if self.live is None:
            return
        line = self._line()
        if self.comparison is None or not any(r.epochs for r in self.comparison.results):
            self.draw(Group(*map(Text, list(self.recent)[:-1]), line))
            return
        from ..report.terminal import renderable

        table = renderable(self.comparison, self.console.width, running=True)
        self.draw(Group(Padding(table, (0, 0, 1, 0)), line))

    def _line(self) -> RenderableType:
        """Return what is going on, after the first round with a bar and the time that is left."""
        what = self.recent[-1] if self.recent else ""
        done, rounds, left = self.clock.done, self.clock.rounds, self.clock.seconds_left()
        if left is None or done == rounds:
            return Text(what)
        bound = rounds is None or done <= FIRST_ROUNDS
        words = f"{what}; {'at most' if bound else 'about'} {duration(left)} left"
        return self.bar(words, done, rounds)


class RoundClock:
    """Tells from the rounds that are finished how long the others will take.

    done: number of finished rounds. rounds: how many there will be; None where that depends on the
    precision. first, last: how many were finished at two moments, and the moments: the time between
    them tells how long a round takes.
    """

    def __init__(self) -> None:
        self.done = 0
        self.rounds: int | None = None
        self.began: float | None = None
        self.first = self.last = (0, 0.0)

    def update(self, comparison: Comparison) -> None:
        """Note which rounds are finished, and when."""
        if comparison.reference is None:
            return  # the proof is not over
        self.done = max((e.round for r in comparison.results for e in r.epochs), default=0)
        self.rounds, self.limit = comparison.settings.rounds, comparison.max_round_seconds
        now = time.monotonic()
        if self.began is None:
            self.began, self.first, self.last = now, (self.done, now), (self.done, now)
        elif self.done == 1:
            self.last = (self.done, now)  # the peaks belong to the first round
        elif self.done > self.last[0]:
            self.first = self.last if self.last[0] <= FIRST_ROUNDS else self.first
            self.last = (self.done, now)

    def seconds_left(self) -> float | None:
        """Return the seconds that the remaining rounds will take; None before the first one.

        The first ones take longer than the others: after them the figure is a bound, and later they
        do not count.
        """
        (done_before, start), (done, end) = self.first, self.last
        if self.began is None or done == done_before:
            return None
        now, rounds = time.monotonic(), self.rounds or MIN_ROUNDS
        seconds = (rounds - done) * (end - start) / (done - done_before)
        limit = 0.0 if self.rounds else self.limit - (now - self.began)
        return max(0.0, limit, seconds - (now - end))


def duration(seconds: float) -> str:
    """Return a duration in words: "40 s", "4 min", "1 h 5 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
