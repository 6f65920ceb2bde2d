"""Hold what the charts share: the data of a row, its colour and axis, and the specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt

from ...results.cells import CellResult
from ...results.comparison import Comparison
from ...results.statistics import Estimate
from ..row_names import row_name

ROW_HEIGHT = 34
"""Pixels of a row in a chart with a row for each cell."""
HEIGHT = 280
"""Pixels of the height of the other charts."""
MAX_LEGEND = 8
"""Frameworks that a legend names; of more the tooltips tell."""
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07c00", "#2f8fc4", "#808080"]
"""Colours that colour-blind readers can tell apart (after M. Okabe and K. Ito, "Color Universal
Design", 2008), the light ones darker so that a white background does not hide them."""
INTERVALS = (
    "A dot is the median of the rounds; the line is its 95 % interval, or the range of fewer than "
    "six rounds. Left is better."
)
Values = list[dict[str, Any]]


@dataclass(frozen=True)
class Chart:
    """Hold one chart.

    question, answer: its headings. note: how to read it. specification: Vega-Lite as JSON values.
    headers, cells: its figures as a table.
    """

    name: str
    question: str
    answer: str
    note: str
    specification: dict[str, Any]
    headers: list[str]
    cells: list[list[str]]


def measured(comparison: Comparison) -> list[CellResult]:
    """Return the cells with a finished round."""
    return [result for result in comparison.results if result.steady]


def ranked(comparison: Comparison) -> list[CellResult]:
    """Return the cells whose figures may be compared: no answer is drawn from others."""
    return [result for result in comparison.results if comparison.is_ranked(result)]


def labels(comparison: Comparison, result: CellResult) -> dict[str, Any]:
    return {"row": row_name(comparison, result), "framework": result.cell.label}


def interval_layers(
    rows: alt.Chart,
    names: list[str],
    title: str,
    scale: alt.Scale,
    size: int,
) -> list[alt.Chart]:
    """Return the layers that draw the `bounds` of each row's ratio: a dot on a line, over a line
    at 1.

    rows: the data with the other encodings. names: of the fields that a tooltip begins with. size:
    of a dot, in square pixels.
    """
    low, middle = (alt.X(f"{name}:Q", title=title, scale=scale) for name in ("low", "median"))
    tooltip = [*map(text, names), figure("median"), figure("low"), figure("high")]
    return [
        dashed_line("median", 1.0).encode(x=middle),
        rows.mark_rule(strokeWidth=3).encode(x=low, x2="high"),
        rows.mark_point(filled=True, size=size, opacity=1).encode(x=middle, tooltip=tooltip),
    ]


def dashed_line(name: str, value: float) -> alt.Chart:
    """Return a line across the chart where a field has this value."""
    return alt.Chart(data([{name: value}])).mark_rule(strokeDash=[4, 4])


def bounds(estimate: Estimate) -> dict[str, float]:
    """Return the median and the ends of the line that is drawn through it."""
    return {
        "median": estimate.median,
        "low": estimate.minimum if estimate.low is None else estimate.low,
        "high": estimate.maximum if estimate.high is None else estimate.high,
    }


def row_axis(comparison: Comparison) -> alt.Y:
    """Return the axis with a row for each cell, in the order of the table."""
    order = [row_name(comparison, result) for result in comparison.results]
    return alt.Y("row:N", title=None, sort=order, axis=alt.Axis(labelLimit=160))


def colour(comparison: Comparison, legend: bool = True) -> alt.Color:
    """Return the colour of a framework, the same in every chart.

    legend: whether the chart needs one; where each row has a label it does not.
    """
    titles = list(dict.fromkeys(result.cell.label for result in comparison.results))
    return colour_of(titles, legend)


def colour_of(titles: list[str], legend: bool = True) -> alt.Color:
    colours = [PALETTE[index % len(PALETTE)] for index in range(len(titles))]
    scale = alt.Scale(domain=titles, range=colours)
    top = alt.Legend(orient="top", columns=2, symbolType="circle")
    shown = top if legend and len(titles) <= MAX_LEGEND else None
    return alt.Color("framework:N", title=None, scale=scale, legend=shown)


def figure(name: str) -> alt.Tooltip:
    return alt.Tooltip(f"{name}:Q", format=".3~g")


def text(field: str) -> alt.Tooltip:
    """Return the tooltip of a field, with its type: an object takes Altair less time than text."""
    return alt.Tooltip(field)


def data(values: Values) -> alt.InlineData:
    return alt.InlineData(values=values)


def specification(chart: Any, height: int = HEIGHT) -> dict[str, Any]:
    """Return the chart as wide as its place on the page, and `height` pixels high."""
    # not validated, which takes Altair most of its time: the tests do it
    sized: dict[str, Any] = chart.properties(width="container", height=height).to_dict(
        validate=False
    )
    return sized
