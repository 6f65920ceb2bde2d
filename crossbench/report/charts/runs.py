"""The chart over several runs: models, machines or days."""

from __future__ import annotations

import altair as alt

from ...results.comparison import Comparison
from ...results.several_runs import common_framework, mean_ratios, run_labels, same_group
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
    figure,
    labels,
    measured,
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
    for label, comparison in zip(run_labels(comparisons), comparisons, strict=True):
        for result in measured(comparison):
            other = same_group(comparison, result, base)
            ratio = comparison.paired(result, other) if other else None
            if ratio is None or other is result:
                continue
            where = f"{label}, {result.cell.device}, {count(result.cell.threads, 'thread')}"
            if len({r.cell.work for c in comparisons for r in c.results}) > 1:
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
    line = alt.Chart(data([{"median": 1}])).mark_rule(strokeDash=[4, 4])
    chart = alt.layer(
        line.encode(x=alt.X("median:Q", title=x, scale=scale)),
        marks.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q", title=x, scale=scale), x2="high"),
        marks.mark_point(filled=True, size=90, opacity=1).encode(
            x=alt.X("median:Q", title=x, scale=scale),
            tooltip=["row:N", "framework:N", figure("median"), figure("low"), figure("high")],
        ),
    )
    rows = len({value["row"] for value in values})
    return Chart(
        "several",
        "Does it hold over the runs?",
        means,
        "Each ratio is of the steady epochs of one run, paired by round. " + INTERVALS,
        specification(chart, ROW_HEIGHT * (rows + 1)),
        ["run", "framework", f"× {base}"],
        cells,
    )
