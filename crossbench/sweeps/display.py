"""Shows the state of a sweep: on a terminal while it runs, as lines elsewhere, and for `status`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from statistics import mean
from typing import get_args

from rich.console import Group
from rich.text import Text

from ..inputs.printable import duration, printable
from ..report.formatting import EMPTY_CELL, grid
from ..terminal.output import write_stderr
from ..terminal.progress import LiveDisplay
from .folder import ENDED, State, Task

LINES = 8
"""Jobs that a terminal shows as running."""
REDRAW_SECONDS = 0.5
"""The least time between two drawings: 10,000 jobs may end many times a second."""
STATES = get_args(State)


class SweepDisplay(LiveDisplay):
    """Shows which jobs ran, run and failed.

    On a terminal failures stay above the picture of what runs, which is drawn anew; elsewhere each
    event gets a line.
    """

    def __init__(self) -> None:
        self.drawn = 0.0

    def begin(self, what: str) -> None:
        line = printable(what, 1000)
        if self.live is None:
            write_stderr(f"crossbench: {line}")
        elif " failed" in line:
            with suppress(OSError):
                self.live.console.print(f"crossbench: {line}", markup=False, highlight=False)

    def update(self, tasks: Sequence[Task]) -> None:
        if self.live is None or time.monotonic() - self.drawn < REDRAW_SECONDS:
            return
        self.drawn = time.monotonic()
        running = [task for task in tasks if task.state == "runs"]
        lines = [Text(f"{task.machine}  {task.name}") for task in running[:LINES]]
        if len(running) > LINES:
            lines.append(Text(f"and {len(running) - LINES:,} more"))
        left = seconds_left(tasks)
        words = counts(tasks) + (f"; about {duration(left)} left" if left else "")
        ended = sum(task.state in ENDED for task in tasks)
        self.draw(Group(*lines, self.bar(words, ended, len(tasks))))


def status(tasks: Sequence[Task], goes_on: bool | None) -> str:
    """Return a table of the tasks that have begun, and a sentence about all.

    goes_on: whether the sweep runs now; None if that is not known.
    """
    rows = [
        {
            "job": task.name,
            "state": task.state,
            "machine": task.machine or EMPTY_CELL,
            "since": task.since[:19].replace("T", " ") or EMPTY_CELL,
            "took": duration(task.seconds) if task.seconds else EMPTY_CELL,
            "reason": task.reason or "",
        }
        for task in sorted(tasks, key=lambda task: STATES.index(task.state))
        if task.state != "queued"
    ]
    left = seconds_left(tasks)
    words = counts(tasks)
    if any(task.state not in ENDED for task in tasks):
        if goes_on is False:
            words += ". No sweep writes to this folder now: the same command goes on with it."
        elif left:
            words += f"; about {duration(left)} left."
    if not rows:
        return words
    hidden = [] if any(row["reason"] for row in rows) else ["reason"]
    return f"{grid(rows, hidden, text_columns=len(rows[0]) - len(hidden))}\n\n{words}"


def counts(tasks: Sequence[Task]) -> str:
    """Return how many tasks are in each state, in words."""
    found: Counter[str] = Counter(task.state for task in tasks)
    words = {"runs": "running", "waits": "waiting for their machine"}
    states = [f"{found[s]:,} {words.get(s, s)}" for s in STATES if found[s]]
    return f"{len(tasks):,} {'job' if len(tasks) == 1 else 'jobs'}: {', '.join(states)}"


def seconds_left(tasks: Sequence[Task]) -> float | None:
    """Return the seconds that the other jobs take, by the mean of those that ended; or None."""
    took = [task.seconds for task in tasks if task.seconds]
    unended = sum(task.state not in ENDED for task in tasks)
    running = sum(task.state == "runs" for task in tasks)
    return unended * mean(took) / max(running, 1) if took and unended else None
