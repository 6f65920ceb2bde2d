"""Format figures for tables: three or four digits, intervals, a dash for a missing value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from tabulate import tabulate

from ..inputs.printable import printable
from ..results.settings import Target
from ..results.statistics import Estimate

EMPTY_CELL = "–"
MAX_CELL_CHARACTERS = 100
"""Characters that a table cell may have; a longer text, such as a framework's title, is cut."""
MAX_LINE_CHARACTERS = 10_000
"""Characters that a line outside the tables may have; real ones have some thousand at most."""
EXPONENT_FROM = 1e15
"""Numbers from this one on are written with an exponent."""


def grid(
    rows: list[dict[str, str]],
    hidden: Iterable[str] = (),
    text_columns: int = 2,
    markdown: bool = False,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the rows as a table with a column for each key of the first, without the hidden ones.

    The first `text_columns` columns are aligned to the left, the figures after them to the right.
    headers: of the columns that have another header than their key; they may have line breaks.
    """
    if not rows:
        return "nothing was measured"
    columns = [name for name in rows[0] if name not in hidden]
    return draw(
        [headers.get(name) or printable(name, MAX_CELL_CHARACTERS) for name in columns],
        [[printable(row[name], MAX_CELL_CHARACTERS) for name in columns] for row in rows],
        ["left"] * text_columns + ["right"] * (len(columns) - text_columns),
        "pipe" if markdown else "simple",
    )


def equal_columns(rows: list[dict[str, str]], *names: str) -> list[str]:
    """Return those of the columns that say the same of every row."""
    return [name for name in names if len({cells[name] for cells in rows}) == 1]


def draw(headers: list[str], rows: list[list[str]], alignment: Sequence[str], layout: str) -> str:
    """Return a table. layout: "simple" (plain text), "pipe" (Markdown) or "html".

    Only plain text has two lines where a header has a line break.
    """
    if layout != "simple":
        headers = [" ".join(header.split()) for header in headers]
    if layout == "pipe":
        headers = [escape_markdown(header) for header in headers]
        rows = [[escape_markdown(cell) for cell in row] for row in rows]
    return tabulate(
        rows, headers=headers, tablefmt=layout, disable_numparse=True, colalign=alignment
    )


def escape_markdown(text: str) -> str:
    """Escape what Markdown would take for its own marks."""
    for mark in "\\`*_|<>[]":
        text = text.replace(mark, f"\\{mark}")
    return text


def lines(texts: Iterable[str]) -> str:
    """Join the texts, each as one printable line: names and reasons may hold any characters."""
    return "\n".join(printable(text, MAX_LINE_CHARACTERS) for text in texts)


def joined(values: Iterable[object], word: str = "and") -> str:
    """Return the values as a list in a sentence: "a, b and c"."""
    words = list(map(str, values))
    if not words:
        return ""
    *others, last = words
    return f"{', '.join(others)} {word} {last}" if others else last


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return the number with its noun. plural: where it is not the noun with an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def device_words(device: str) -> str:
    """Return a device for a reader: "the CPU", "the GPU", or "gpu:1"."""
    return {"cpu": "the CPU", "gpu": "the GPU"}.get(device, device)


def percent(value: float | None) -> str:
    if value is None:
        return EMPTY_CELL
    # + 0.0: no minus sign before a value that is rounded to 0
    return f"{round(value, 3) + 0.0:.1%}" if abs(value) < EXPONENT_FROM else f"{value:.2e}"


def target_name(target: Target) -> str:
    """Return "60%" for an accuracy, and "a loss of 1.6" for a loss."""
    is_share = target.what == "accuracy"
    return f"{100 * target.value:g}%" if is_share else f"a loss of {target.value:g}"


def target_value(target: Target, value: float | None) -> str:
    """Return what a training to the target reached: an accuracy in percent, or a loss."""
    return percent(value) if target.what == "accuracy" or value is None else number(value)


def with_interval(estimate: Estimate | None, factor: float = 1.0) -> str:
    """Return the median with its 95 % interval in (), or, for too few values, their range in [].

    factor: what turns the estimate's unit into the one that is shown.
    """
    if estimate is None:
        return EMPTY_CELL
    estimate = estimate.scaled(factor)
    if estimate.minimum == estimate.maximum:
        return number(estimate.median)
    if estimate.low is None or estimate.high is None:
        low, high = number(estimate.minimum), number(estimate.maximum)
        return f"{number(estimate.median)} [{low}–{high}]"
    return f"{number(estimate.median)} ({number(estimate.low)}–{number(estimate.high)})"


def number(value: float | None) -> str:
    """Return the value with three significant digits, or two decimals from 1 to 100."""
    if value is None:
        return EMPTY_CELL
    size = abs(value)
    if 0 < size < 0.00005:
        return "<0.0001" if value > 0 else ">-0.0001"
    if size >= EXPONENT_FROM:
        return f"{value:.2e}"
    if size >= 100:
        return f"{value:,.0f}"
    digits = 2 if size >= 1 or size == 0 else 3 if size >= 0.1 else 4
    return f"{value:.{digits}f}"


def loss(value: float | None) -> str:
    """Return a loss with the four decimals in which rows of different precisions may differ."""
    if value is None:
        return EMPTY_CELL
    return f"{value:.4f}" if abs(value) < EXPONENT_FROM else f"{value:.4e}"


def mebibytes(value: float | None) -> str:
    """Return bytes as whole MiB."""
    return integer(None if value is None else value / 2**20)


def integer(value: float | None) -> str:
    if value is None:
        return EMPTY_CELL
    return f"{value:,.0f}" if abs(value) < EXPONENT_FROM else f"{value:.2e}"
