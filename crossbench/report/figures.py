"""Figures as a reader wants them: three significant digits, intervals, and a dash for nothing."""

from __future__ import annotations

from collections.abc import Iterable

from tabulate import tabulate

from ..results.statistics import Estimate
from ..words import clean

NOTHING = "–"
WIDEST = 100
"""Characters of a cell of a table; a longer one, such as a framework's title, is cut."""
LONGEST = 10_000
"""Characters of a line below it: the machines' longest are some thousand."""
HUGE = 1e15
"""From here on a number has an exponent."""


def grid(rows: list[dict[str, str]], hidden: Iterable[str] = (), words: int = 2) -> str:
    """Rows under the names of their first; the first `words` columns are words, not figures."""
    if not rows:
        return "nothing was measured"
    columns = [name for name in rows[0] if name not in hidden]
    return tabulate(
        [[clean(row[name], WIDEST) for name in columns] for row in rows],
        headers=[clean(name, WIDEST) for name in columns],
        tablefmt="simple",
        disable_numparse=True,
        colalign=["left"] * words + ["right"] * (len(columns) - words),
    )


def lines(texts: Iterable[str]) -> str:
    """Each text in a line of its own, whatever it holds: names and reasons come from outside."""
    return "\n".join(clean(text, LONGEST) for text in texts)


def count(number: int, thing: str, things: str | None = None) -> str:
    """things: where it is not thing with an s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {things or thing + 's'}"


def percent(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.1%}" if abs(value) < HUGE else f"{value:.2e}"


def spread(estimate: Estimate | None) -> str:
    """The median with its 95 % interval in (), or, of too few values for one, its range in []."""
    if estimate is None:
        return NOTHING
    if estimate.minimum == estimate.maximum:
        return number(estimate.median)
    if estimate.low is None or estimate.high is None:
        low, high = number(estimate.minimum), number(estimate.maximum)
        return f"{number(estimate.median)} [{low}–{high}]"
    return f"{number(estimate.median)} ({number(estimate.low)}–{number(estimate.high)})"


def number(value: float | None) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return NOTHING
    if 0 < value < 0.00005:
        return "<0.0001"
    if abs(value) >= HUGE:
        return f"{value:.2e}"
    if value >= 100:
        return f"{value:,.0f}"
    digits = 2 if value >= 1 or value == 0 else 3 if value >= 0.1 else 4
    return f"{value:.{digits}f}"


def whole(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) < HUGE else f"{value:.2e}"
