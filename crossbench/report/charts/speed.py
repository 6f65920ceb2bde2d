"""Draw the time: who is faster, how sure it is, and what it depends on."""

from __future__ import annotations

from statistics import median
from typing import Any, Literal

import altair as alt

from ...results.cells import CellResult, Group
from ...results.comparison import Comparison
from ...results.epochs import TASKS
from ...results.statistics import Estimate
from ..formatting import number, with_interval
from ..row_names import name_with, row_name
from ..verdicts import verdicts
from .drawing import (
    INTERVALS,
    ROW_HEIGHT,
    Chart,
    Values,
    bounds,
    colour,
    dashed_line,
    data,
    figure,
    interval_layers,
    labels,
    measured,
    ranked,
    row_axis,
    specification,
    text,
)

VERTICAL_INTERVALS = (
    "The vertical lines are 95 % intervals, or the ranges of fewer than six rounds."
)


def ratios(comparison: Comparison) -> Chart | None:
    """Draw who is faster: the ratio of each row with its interval, and a line at 1."""
    found = [(r, ratio) for r in ranked(comparison) if (ratio := comparison.ratio(r))]
    if len(found) < 2:
        return None
    base = comparison.settings.baseline or "the fastest"
    values = [labels(comparison, result) | bounds(ratio) for result, ratio in found]
    rows = alt.Chart(data(values)).encode(
        y=row_axis(comparison), color=colour(comparison, legend=False)
    )
    title, scale = f"seconds relative to {base}", alt.Scale(zero=True, nice=True)
    chart = alt.layer(*interval_layers(rows, ["row:N"], title, scale, size=110))
    return Chart(
        "ratios",
        "Who is faster?",
        " ".join(verdicts(comparison)),
        "Seconds of a steady epoch relative to those of the row with 1.00 on the same device and "
        "threads, paired by round. " + INTERVALS,
        specification(chart, ROW_HEIGHT * len(found)),
        ["row", f"× {base}"],
        [[row_name(comparison, result), with_interval(ratio)] for result, ratio in found],
    )


def rounds(comparison: Comparison) -> Chart | None:
    """Draw how sure the figures are: every steady epoch in the order in which it ran."""
    values: Values = []
    cells = []
    # the clock of a run that was resumed may have begun anew: order by round, then by the clock
    steady = ((e.round, e.started) for r in comparison.results for e in r.steady)
    position = {key: index for index, key in enumerate(sorted(steady), 1)}
    for result in measured(comparison):
        middle = median(comparison.seconds(result))
        seconds = [comparison.per_epoch(result, epoch) for epoch in result.steady]
        values += [
            labels(comparison, result)
            | {
                "position": position[epoch.round, epoch.started],
                "percent": 100 * (taken / middle - 1),
                "seconds": taken,
                "round": epoch.round,
            }
            for epoch, taken in zip(result.steady, seconds, strict=True)
        ]
        shares = [f"{(s / middle - 1):+.1%}" for s in (min(seconds), max(seconds))]
        cells.append([row_name(comparison, result), str(len(seconds)), number(middle), *shares])
    if not values:
        return None
    widest = max(abs(value["percent"]) for value in values)
    chart = alt.Chart(data(values)).encode(
        x=alt.X("position:Q", title="steady epochs, in the order in which they ran"),
        y=alt.Y("percent:Q", title="seconds, % from the row's median"),
        color=colour(comparison),
        tooltip=[text("row:N"), text("round:O"), figure("seconds"), figure("percent")],
    )
    line = dashed_line("percent", 0).encode(y="percent:Q")
    return Chart(
        "rounds",
        "How sure is it?",
        f"No epoch lies more than {widest:.0f} % from its row's median."
        if widest < 5
        else f"Epochs lie up to {widest:.0f} % from their row's median.",
        "Each mark is a steady epoch, in the order in which they ran. A slope is a drift of the "
        "machine, which the paired ratios cancel; a single mark far away is a disturbance.",
        specification(alt.layer(line, chart.mark_point(filled=True, size=60, opacity=0.8))),
        ["row", "epochs", "median s", "fastest", "slowest"],
        cells,
    )


def batch_sizes(comparison: Comparison) -> Chart | None:
    """Draw the time of a step by batch size, where there are several."""
    drawn = _scaling(comparison, "batch_size", "examples per step", ranked(comparison))
    return drawn and Chart(
        "batch-sizes",
        "How does the cost grow with the batch?",
        " ".join(verdicts(comparison)),
        "Both axes are logarithmic. Where a line is flat, the cost of calls dominates; where it "
        f"rises as the batch does, the arithmetic. {VERTICAL_INTERVALS}",
        *drawn,
    )


def threads(comparison: Comparison) -> Chart | None:
    """Draw the time of a step by the number of CPU threads, where there are several."""
    on_cpu = [result for result in ranked(comparison) if result.cell.device == "cpu"]
    gains = [(r, speedup) for r in on_cpu if (speedup := comparison.thread_speedup(r))]
    drawn = _scaling(comparison, "threads", "CPU threads", on_cpu)
    if not gains or drawn is None:
        return None
    most, gain = max(gains, key=lambda entry: entry[1].median)
    return Chart(
        "threads",
        "What do more threads give?",
        f"{row_name(comparison, most)} gains most: {with_interval(gain)} times.",
        "Both axes are logarithmic: at best a line falls by half with twice the threads. "
        f"{VERTICAL_INTERVALS}",
        *drawn,
    )


def _scaling(
    comparison: Comparison,
    field: Literal["batch_size", "threads"],
    title: str,
    cells: list[CellResult],
) -> tuple[dict[str, Any], list[str], list[list[str]]] | None:
    """Return a chart of the time of a step by a field of the cells, with the headers and the rows
    of its table; None where all cells have the same value.

    A line joins cells that differ in the field alone. title: of the field's axis.
    """
    others = [name for name in Group._fields if name != field]
    lines: dict[str, list[tuple[int, CellResult, Estimate]]] = {}
    for result in cells:
        if seconds := comparison.step_seconds(result):
            line = lines.setdefault(name_with(comparison, result, *others), [])
            line.append((getattr(result.cell, field), result, seconds))
    found = [
        (name, *point)
        for name, points in lines.items()
        for point in sorted(points, key=lambda point: point[0])
    ]
    at = sorted({value for _, value, _, _ in found})
    if len(at) < 2:
        return None
    name_of_field = field.replace("_", " ")
    values: Values = [
        labels(comparison, result)
        | {"line": line, "task": result.cell.task, name_of_field: value}
        | {f"ms {name}": 1e3 * bound for name, bound in bounds(seconds).items()}
        for line, value, result, seconds in found
    ]
    log = alt.Scale(type="log", nice=False, padding=12)
    x = alt.X(f"{name_of_field}:Q", title=title, scale=log, axis=alt.Axis(values=at))
    vertical = alt.Scale(type="log")
    y = alt.Y("ms median:Q", title="ms per step", scale=vertical)
    low = alt.Y("ms low:Q", title="ms per step", scale=vertical)
    marks = alt.Chart(data(values)).encode(x=x, color=colour(comparison), detail="line:N")
    dash = {}
    if len({value["task"] for value in values}) > 1:
        legend = alt.Legend(orient="top", title=None)
        solid_and_dashed = alt.Scale(domain=list(TASKS), range=[[1, 0], [4, 3]])
        dash = {"strokeDash": alt.StrokeDash("task:N", legend=legend, scale=solid_and_dashed)}
    tooltip = [text("row:N"), *(figure(f"ms {name}") for name in ("median", "low", "high"))]
    chart = alt.layer(
        marks.mark_line(strokeWidth=2.5).encode(y=y, **dash),
        marks.mark_rule(strokeWidth=3).encode(y=low, y2="ms high"),
        marks.mark_point(filled=True, size=70, opacity=1).encode(y=y, tooltip=tooltip),
    )
    rows = [[row_name(comparison, result), with_interval(s, 1e3)] for _, _, result, s in found]
    return specification(chart), ["row", "ms per step"], rows
