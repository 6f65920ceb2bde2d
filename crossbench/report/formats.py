"""Write rows of plain figures as CSV and JSON, and choose the output that a user asks for."""

from __future__ import annotations

import csv
import io
import json
from html import escape

from ..results.comparison import Comparison
from ..results.rows import Value
from . import Format
from .details import all_details
from .formatting import draw, escape_markdown
from .sections import requested_sections
from .several_runs import change_rows, change_table, mean_table, merged_rows, merged_tables
from .summary import summarize
from .terminal import WIDTH, text


def table(
    comparison: Comparison, details: bool = False, format: Format = "text", width: int = WIDTH
) -> str:
    """Return the comparison as a table.

    details: whether to show all columns, further tables, notes and the legend, instead of the
        summary; CSV and JSON always have all figures.
    format: "text", "markdown", "csv" or "json".
    width: characters to wrap the sentences of the summary to.
    """
    return tables([comparison], details, format, width)


def tables(
    comparisons: list[Comparison],
    details: bool,
    format: Format,
    width: int | None = None,
    colour: bool = False,
) -> str:
    """Return the tables of several comparisons, then the means of their ratios; see `table`."""
    if format in ("csv", "json"):
        return plain([row for comparison in comparisons for row in comparison.rows()], format)
    if details:
        drawn = [all_details(comparison, format == "markdown") for comparison in comparisons]
    elif format == "markdown":
        drawn = [markdown(comparison) for comparison in comparisons]
    else:
        drawn = [text(comparison, width or WIDTH, colour) for comparison in comparisons]
    means = mean_table(comparisons, format == "markdown") if len(comparisons) > 1 else None
    return "\n\n".join(filter(None, [*drawn, means]))


def markdown(comparison: Comparison) -> str:
    """Return the summary as GitHub-flavoured Markdown."""
    comparison = comparison.frozen()
    summary = summarize(comparison)
    table = draw(summary.columns, summary.rows, summary.alignment, "pipe")
    warnings = "\n".join(f"- {escape_markdown(line)}" for line in summary.warnings)
    sentences = (
        escape_markdown(line) for line in [summary.heading, *summary.verdicts, summary.parity]
    )
    first, *others = filter(None, sentences)
    sections = requested_sections(comparison, markdown=True)
    return "\n\n".join(filter(None, [first, table, *sections, *others, warnings]))


def html(comparison: Comparison) -> str:
    """Return the summary as an HTML fragment: how a notebook shows a comparison."""
    comparison = comparison.frozen()
    summary = summarize(comparison)
    table = draw(summary.columns, summary.rows, summary.alignment, "html")
    after = "".join(
        f"<p>{escape(line)}</p>"
        for line in [*summary.verdicts, summary.parity, *summary.warnings]
        if line
    )
    return f"<div><p>{escape(summary.heading)}</p>{table}{after}</div>"


def changes(comparisons: list[Comparison], format: Format = "text") -> str:
    """Return what changed from the first comparison to each of the others."""
    if format in ("csv", "json"):
        return plain(change_rows(comparisons), format)
    return change_table(comparisons, format == "markdown")


def merge(comparisons: list[Comparison], format: Format = "text") -> str:
    """Return the rows of all comparisons, of several machines for example, in one table.

    Comparisons of other work (another model, other data) get a table of their own; then follow the
    geometric means of the ratios over all.

    format: "text", "markdown", "csv" or "json".
    """
    if format in ("csv", "json"):
        return plain(merged_rows(comparisons), format)
    return merged_tables(comparisons, format == "markdown")


def plain(rows: list[dict[str, Value]], format: Format) -> str:
    """Return the rows as CSV (RFC 4180, but with line feeds) or as a JSON array of objects."""
    if format == "json":
        return json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False)
    names = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().rstrip("\n")
