"""Lay the summary out for a terminal, as plain text or in colours."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..results.comparison import Comparison
from .sections import requested_sections
from .summary import Summary, summarize

WIDTH = 100
"""Characters of a line where the width of the terminal is not known."""
MIN_WIDTH = 40
"""Characters of the narrowest text."""


def text(comparison: Comparison, width: int = WIDTH, colour: bool = False) -> str:
    """Return the summary as plain text of `width` characters.

    colour: whether to mark the fastest rows and the warnings by the colours of a terminal.
    """
    console = Console(
        file=io.StringIO(),
        width=max(width, MIN_WIDTH),
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
    )
    console.print(renderable(comparison, console.width), highlight=False)
    written = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in written.splitlines())


def renderable(comparison: Comparison, width: int, running: bool = False) -> Group:
    """Return the summary for rich; where the terminal is narrow, without the last columns."""
    comparison = comparison.frozen()
    summary = summarize(comparison, running)
    sentences = [line for line in (*summary.verdicts, summary.parity) if line]
    parts: list[RenderableType] = [Text(summary.heading)]
    if summary.rows:
        parts.append(_table(summary, width))
    parts += [
        Text(section, no_wrap=True) for section in requested_sections(comparison, width=width)
    ]
    if sentences:
        parts.append(Group(*map(Text, sentences)))
    if summary.warnings:
        parts.append(Group(*map(_warning, summary.warnings)))
    spaced = (Padding(part, (0, 0, 1, 0)) for part in parts[:-1])
    return Group(*spaced, parts[-1])


def _table(summary: Summary, width: int) -> Table:
    """Return the table with as many columns as fit, at least those that decide."""
    for columns in range(len(summary.columns), summary.deciding, -1):
        table = _table_of(summary, columns)
        if Console(width=10 * width).measure(table).maximum <= width:
            return table
    return _table_of(summary, summary.deciding)


def _table_of(summary: Summary, columns: int) -> Table:
    """Return the table of the first columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    headers = summary.columns[:columns]
    two_lines = any("\n" in name for name in headers)
    for name, alignment in zip(headers, summary.alignment, strict=False):
        header = name if "\n" in name or not two_lines else f"\n{name}"
        table.add_column(Text(header), justify=alignment, overflow="fold")
    for cells, fastest in zip(summary.rows, summary.fastest, strict=True):
        table.add_row(*map(Text, cells[:columns]), style="bold" if fastest else None)
    return table


def _warning(line: str) -> Table:
    """Return a line that is indented where it is wrapped."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text("!"), Text(line), style="yellow")
    return grid
