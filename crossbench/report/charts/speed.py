"""The charts of time: who is faster, how sure it is, and what it depends on."""

from __future__ import annotations

from statistics import median

import altair as alt

from ...results.cells import CellResult
from ...results.comparison import Comparison
from ...results.epochs import TASKS
from ..formatting import number, with_interval
from ..row_names import name_with, row_name
from ..sections import by_batch_size
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
    interval_cells,
    intervals,
    labels,
    measured,
    ranked,
    row_axis,
    specification,
    text,
)


def ratios(comparison: Comparison) -> Chart | None:
    """Draw who is faster: the ratio of each row with its interval, and a line at 1."""
    found = [(r, ratio) for r in ranked(comparison) if (ratio := comparison.ratio(r))]
    if len(found) < 2:
        return None
    base = comparison.settings.baseline or "the fastest"
    return Chart(
        "ratios",
        "Who is faster?",
        " ".join(verdicts(comparison)),
        "Seconds of a steady epoch relative to those of the row with 1.00 on the same device and "
        "threads, paired by round. " + INTERVALS,
        intervals(comparison, found, f"seconds relative to {base}", at=1.0),
        ["row", f"× {base}"],
        interval_cells(comparison, found),
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


def first_epochs(comparison: Comparison) -> Chart | None:
    """Draw what the first epoch costs, beside the steady one."""
    found = [
        (result, first.median, steady.median)
        for result in ranked(comparison)
        if (first := comparison.first_epoch(result)) and (steady := comparison.steady(result))
    ]
    if not found:
        return None
    values: Values = [
        labels(comparison, result) | {"kind": kind, "seconds": seconds}
        for result, first, steady in found
        for kind, seconds in (("first epoch", first), ("steady epoch", steady))
    ]
    cells = [
        [row_name(comparison, r), number(first), number(steady), *_compilation(comparison, r)]
        for r, first, steady in found
    ]
    times, slowest = max((first / steady, row_name(comparison, r)) for r, first, steady in found)
    line = alt.Chart(data(values)).encode(
        y=row_axis(comparison), color=colour(comparison, legend=False)
    )
    x = alt.X("seconds:Q", title="seconds of an epoch", scale=alt.Scale(zero=True))
    grey = alt.Legend(orient="top", symbolFillColor="#808080", symbolStrokeColor="#808080")
    shape = alt.Shape(
        "kind:N", title=None, scale=alt.Scale(range=["diamond", "circle"]), legend=grey
    )
    chart = alt.layer(
        line.mark_line(strokeWidth=2).encode(x=x, detail="row:N"),
        line.mark_point(filled=True, size=110, opacity=1).encode(
            x=x, shape=shape, tooltip=[text("row:N"), text("kind:N"), figure("seconds")]
        ),
    )
    width = max(map(len, cells))
    return Chart(
        "first-epochs",
        "What does the first epoch cost?",
        f"The first epoch takes at most {number(times)} times as long as a steady one: {slowest}.",
        "A first epoch begins in a new process, with compilation and tuning. What a runtime tells "
        "of its own compilation is in the table.",
        specification(chart, ROW_HEIGHT * len(cells)),
        ["row", "first epoch s", "steady epoch s", *["of it"] * (width - 3)],
        [[*row, *[""] * (width - len(row))] for row in cells],
    )


def _compilation(comparison: Comparison, result: CellResult) -> list[str]:
    """Return what a runtime tells of its own compilation in the first epoch."""
    figures = comparison.runtime_figures(result)
    return [f"{name} {number(first)}" for name, (first, _) in figures.items() if "compil" in name]


def threads(comparison: Comparison) -> Chart | None:
    """Draw the speed-up of each framework by its number of threads, and the ideal one."""
    on_cpu = [result for result in ranked(comparison) if result.cell.device == "cpu"]
    found = [(r, speedup) for r in on_cpu if (speedup := comparison.thread_speedup(r))]
    if not found:
        return None
    values: Values = [
        labels(comparison, result) | {"threads": result.cell.threads, "speed-up": speedup.median}
        for result, speedup in found
    ]
    for title in dict.fromkeys(result.cell.label for result, _ in found):
        fewest = min(result.cell.threads for result in on_cpu if result.cell.label == title)
        values.append({"framework": title, "row": title, "threads": fewest, "speed-up": 1.0})
    numbers = [value["threads"] for value in values]
    ideal = [{"threads": n, "speed-up": n / min(numbers)} for n in (min(numbers), max(numbers))]
    cells = [
        [row_name(comparison, result), str(result.cell.threads), with_interval(speedup)]
        for result, speedup in found
    ]
    x = alt.X("threads:Q", title="CPU threads", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("speed-up:Q", title="speed-up over the fewest threads")
    most, gain = max(found, key=lambda entry: entry[1].median)
    chart = alt.layer(
        alt.Chart(data(ideal)).mark_line(strokeDash=[4, 4], color="#808080").encode(x=x, y=y),
        alt.Chart(data(values))
        .mark_line(point=True, strokeWidth=2.5)
        .encode(x=x, y=y, color=colour(comparison), tooltip=[text("row:N"), figure("speed-up")]),
    )
    return Chart(
        "threads",
        "What do more threads give?",
        f"{row_name(comparison, most)} gains most: {with_interval(gain)} times.",
        "The dashed line is the ideal: twice the threads, twice the speed.",
        specification(chart),
        ["row", "threads", "speed-up"],
        cells,
    )


def batch_sizes(comparison: Comparison) -> Chart | None:
    """Draw the time of a step by batch size, where there are several."""
    found = [
        (result, seconds)
        for cells in by_batch_size(comparison)
        for result in cells
        if comparison.is_ranked(result) and (seconds := comparison.step_seconds(result))
    ]
    if len({result.cell.batch_size for result, _ in found}) < 2:
        return None
    values: Values = [
        labels(comparison, result)
        | {
            "line": name_with(comparison, result, "device", "threads", "task"),
            "task": result.cell.task,
            "batch size": result.cell.batch_size,
        }
        | {f"ms {name}": 1e3 * value for name, value in bounds(seconds).items()}
        for result, seconds in found
    ]
    log = alt.Scale(type="log", nice=False, padding=12)
    sizes = sorted({value["batch size"] for value in values})
    x = alt.X("batch size:Q", title="examples per step", scale=log, axis=alt.Axis(values=sizes))
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
    cells = [
        [row_name(comparison, result), with_interval(seconds, 1e3)] for result, seconds in found
    ]
    return Chart(
        "batch-sizes",
        "How does the cost grow with the batch?",
        " ".join(verdicts(comparison)),
        "Both axes are logarithmic. Where a line is flat, the cost of calls dominates; where it "
        "rises as the batch does, the arithmetic. The vertical lines are 95 % intervals, or the "
        "ranges of fewer than six rounds.",
        specification(chart),
        ["row", "ms per step"],
        cells,
    )


def cost(comparison: Comparison) -> Chart | None:
    """Draw the cost of 1,000 steady epochs, where there are prices."""
    found = [(r, one.scaled(1000)) for r in ranked(comparison) if (one := comparison.cost(r))]
    if not found:
        return None
    cheapest, estimate = min(found, key=lambda pair: pair[1].median)
    return Chart(
        "cost",
        "What does it cost?",
        f"{row_name(comparison, cheapest)} is cheapest: {number(estimate.median)} for 1,000 "
        "epochs.",
        "At the price of the device's hour, in its currency. " + INTERVALS,
        intervals(comparison, found, "cost of 1,000 steady epochs"),
        ["row", "cost of 1,000 epochs"],
        interval_cells(comparison, found),
    )
