"""Tell how long the rest of a run will take, from what the first round took.

Before that no figure within a third is possible: on one machine the rows of the catalogue compute
7 to 170 GFLOP/s.
"""

from __future__ import annotations

import time

from ..host.machine import cpu_count
from ..inputs.printable import duration
from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.statistics import MIN_ROUNDS
from .cell_round import REPLAYED_SHARE
from .replay import LONG_SECONDS
from .round_steps import WHOLE_ROUND, first_steps, steady_steps


class TimeLeft:
    """Predict when the rounds of a run are over. due: by time.monotonic(); None if unknown."""

    def __init__(self) -> None:
        self.due: float | None = None

    def predict(self, comparison: Comparison, done: int) -> None:
        """Predict it again when so many rounds are done; until the ratios are decided, one more is
        expected. What follows the rounds, and parts of a step, are not predicted.
        """
        settings = comparison.settings
        if settings.layers or settings.target or settings.trace_memory:
            return
        rounds = settings.rounds or max(MIN_ROUNDS, done + 1)
        left = sum(round_seconds(comparison, number) for number in range(done + 1, rounds + 1))
        self.due = time.monotonic() + left

    def words(self) -> str:
        """Return the seconds or minutes that are left, in words; nothing if they are unknown."""
        left = 0.0 if self.due is None else self.due - time.monotonic()
        return f"; about {duration(left)} left" if left > 0 else ""


def round_seconds(comparison: Comparison, number: int) -> float:
    """Return the seconds that a round will take. Its processes start side by side."""
    rows = [r for r in comparison.results if r.status == "pending" and r.steady]
    starts = [result.start_seconds or 0.0 for result in rows]
    start = max(sum(starts) / cpu_count(), *starts, 0.0)
    return start + sum(_row_seconds(comparison, result, number) for result in rows)


def _row_seconds(comparison: Comparison, result: CellResult, number: int) -> float:
    """Return the seconds of a row's epochs in a round: its first one, with what that one compiles,
    an untimed and the timed steady ones, and its share of an epoch that is run again.
    """
    step = result.steady[0].wall_seconds / result.steady[0].steps
    first = next(epoch for epoch in result.epochs if epoch.epoch == 0)
    compiles = max(0.0, first.wall_seconds - step * first.steps)
    of_first = step * first_steps(comparison, result, number)
    of_steady = step * steady_steps(comparison, result, number)
    again = min(LONG_SECONDS, max(of_first, of_steady))
    share = 1.0 if number <= WHOLE_ROUND else REPLAYED_SHARE
    return compiles + of_first + (comparison.settings.epochs + 1) * of_steady + share * again
