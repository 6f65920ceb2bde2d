"""What the charts share: the data of a row, its colour and axis, and the specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt

from ...results.comparison import Comparison
from ...results.records import CellResult
from ...results.statistics import Estimate
from ..formatting import with_interval
from ..summary import row_name

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


Found = list[tuple[CellResult, Estimate]]


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


def estimates(comparison: Comparison, figure: Any) -> Found:
    found = ((result, figure(result)) for result in measured(comparison))
    return [(result, estimate) for result, estimate in found if estimate]


def cells(comparison: Comparison, found: Found) -> list[list[str]]:
    return [[row_name(comparison, result), with_interval(estimate)] for result, estimate in found]


def labels(comparison: Comparison, result: CellResult) -> dict[str, Any]:
    return {"row": row_name(comparison, result), "framework": result.cell.label}


def intervals(
    comparison: Comparison, found: Found, title: str, at: float | None = None
) -> dict[str, Any]:
    """Return a chart with a row for each estimate: a dot on a line. at: of a vertical line."""
    values = [labels(comparison, result) | bounds(estimate) for result, estimate in found]
    scale = alt.Scale(zero=True, nice=True)
    rows = alt.Chart(data(values)).encode(
        y=row_axis(comparison), color=colour(comparison, legend=False)
    )
    layers = [
        rows.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q", title=title, scale=scale), x2="high"),
        rows.mark_point(filled=True, size=110, opacity=1).encode(
            x=alt.X("median:Q", title=title, scale=scale),
            tooltip=["row:N", figure("median"), figure("low"), figure("high")],
        ),
    ]
    if at is not None:
        line = alt.Chart(data([{"median": at}])).mark_rule(strokeDash=[4, 4])
        layers.insert(0, line.encode(x=alt.X("median:Q", title=title, scale=scale)))
    return specification(alt.layer(*layers), ROW_HEIGHT * len(found))


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


def data(values: Values) -> alt.InlineData:
    return alt.InlineData(values=values)


def specification(chart: Any, height: int = HEIGHT) -> dict[str, Any]:
    """Return the chart as wide as its place on the page, and `height` pixels high."""
    return chart.properties(width="container", height=height).to_dict()
