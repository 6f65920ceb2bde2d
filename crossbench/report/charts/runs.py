"""Draw the chart over several runs: models, machines or days."""

from __future__ import annotations

import altair as alt

from ...results.comparison import Comparison
from ...results.several_runs import common_framework, mean_ratios, pairs
from ..formatting import count, with_interval
from ..several_runs import mean_words
from .drawing import (
    INTERVALS,
    ROW_HEIGHT,
    Chart,
    Values,
    bounds,
    colour_of,
    data,
    interval_layers,
    labels,
    specification,
)


def several(comparisons: list[Comparison]) -> Chart | None:
    """Draw how the ratios of the frameworks hold over models, machines or days.

    Each is paired by round to the framework that most of the runs have, in the same group. Over
    several models there is the geometric mean of each framework's ratios.
    """
    comparisons = [comparison.frozen() for comparison in comparisons]
    base = common_framework(comparisons)
    if len(comparisons) < 2 or base is None:
        return None
    values: Values = []
    cells: list[list[str]] = []
    cells_of_all = [r.cell for c in comparisons for r in c.results]
    several_works = len({cell.work for cell in cells_of_all}) > 1
    several_computes = len({cell.compute for cell in cells_of_all}) > 1
    for label, comparison, result, other in pairs(comparisons, base):
        ratio = comparison.paired(result, other)
        if ratio is None:
            continue
        where = f"{label}, {result.cell.device}, {count(result.cell.threads, 'thread')}"
        if several_computes:
            where += f", {result.cell.compute}"
        if several_works:
            where += f", {result.cell.task}, batches of {result.cell.batch_size:,}"
        values.append(labels(comparison, result) | {"row": where, **bounds(ratio)})
        cells.append([where, result.cell.label, with_interval(ratio)])
    if not values:
        return None
    frameworks = list(dict.fromkeys(value["framework"] for value in values))
    means = mean_words(mean_ratios(comparisons, base))
    scale = alt.Scale(type="log")
    x = f"seconds relative to {base}"
    y = alt.Y("row:N", title=None, sort=None, axis=alt.Axis(labelLimit=220))
    marks = alt.Chart(data(values)).encode(y=y, color=colour_of(frameworks), yOffset="framework:N")
    layers = interval_layers(marks, ["row:N", "framework:N"], x, scale, size=90)
    rows = len({value["row"] for value in values})
    return Chart(
        "several",
        "Does it hold over the runs?",
        means,
        "Each ratio is of the steady epochs of one run, paired by round. " + INTERVALS,
        specification(alt.layer(*layers), ROW_HEIGHT * (rows + 1)),
        ["run", "framework", f"× {base}"],
        cells,
    )
