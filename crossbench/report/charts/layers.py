"""Draw the chart of a training step: what each of its parts takes in each row."""

from __future__ import annotations

from typing import Any

import altair as alt

from ...results.breakdown import PartFigures, measured
from ...results.cells import CellResult
from ...results.comparison import Comparison
from ...results.parts import PartCost
from ..formatting import percent
from ..layers import explanations, part_columns, part_name
from ..row_names import row_name
from .drawing import ROW_HEIGHT, Chart, data, figure, labels, row_axis, specification, text

MIN_SHARE = 0.02
"""Share of a step that a part must have in some row to have a colour of its own."""
OTHERS = "the others"


def parts(comparison: Comparison) -> Chart | None:
    """Draw a bar for each row, cut into the parts of its training step."""
    cells = [result for result in measured(comparison) if comparison.is_ranked(result)]
    found = [
        (part, result, figures)
        for part in comparison.parts
        for result in cells
        if (figures := comparison.part_figures(part)[result.name]).seconds
    ]
    if not found:
        return None
    large = [
        part for part in comparison.parts if any(_is_large(f) for p, _, f in found if p is part)
    ]
    names = [part_name(part) for part in large] + [OTHERS]
    values = [_value(comparison, *entry, large) for entry in found]
    bars = alt.Chart(data(values)).mark_bar(height=18)
    chart = bars.encode(
        x=alt.X("sum(milliseconds):Q", title="milliseconds of a training step"),
        y=row_axis(comparison),
        color=alt.Color(
            "part:N",
            title=None,
            scale=alt.Scale(domain=names, scheme="tableau20"),
            legend=alt.Legend(orient="top", columns=2),
        ),
        order=alt.Order("position:Q"),
        tooltip=[text("row:N"), text("part:N"), figure("milliseconds")],
    )
    rows = [part_columns(part_name(p), row_name(comparison, r), figures) for p, r, figures in found]
    part, result, most = max(found, key=lambda entry: entry[2].share or 0.0)
    answer = (
        f"{part_name(part)} is {percent(most.share)} of the step of {row_name(comparison, result)}."
    )
    return Chart(
        "parts",
        "What takes the time of a step?",
        next(iter(explanations(comparison)), answer),
        "Each part is what a piece of the model takes longer with it than without it, forward and "
        "backward. They are timed by themselves: in a step a framework may fuse more of them, or "
        "work on several at the same time, so a bar may be longer or shorter than a step.",
        specification(chart, ROW_HEIGHT * len(cells)),
        list(rows[0]),
        [list(row.values()) for row in rows],
    )


def _is_large(figures: PartFigures) -> bool:
    return figures.share is not None and figures.share >= MIN_SHARE


def _value(
    comparison: Comparison,
    part: PartCost,
    result: CellResult,
    figures: PartFigures,
    large: list[PartCost],
) -> dict[str, Any]:
    """Return what the chart draws of a part: nothing where noise made it negative."""
    assert figures.seconds is not None
    return labels(comparison, result) | {
        "part": part_name(part) if part in large else OTHERS,
        "milliseconds": max(0.0, 1e3 * figures.seconds.median),
        "position": large.index(part) if part in large else len(large),
    }
