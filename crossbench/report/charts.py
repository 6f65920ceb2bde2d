"""Draw the page's charts: each answers one question, from the figures of one comparison.

Each is a Vega-Lite specification, made by Vega-Altair, with a table of the same figures for readers
who do not see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import altair as alt

from ..results.comparison import Comparison
from ..results.records import TASKS, TRAIN, CellResult
from ..results.roofline import intensity
from ..results.several_runs import common_framework, mean_ratios, run_labels, same_group
from ..results.statistics import Estimate
from .formatting import (
    count,
    integer,
    joined,
    number,
    percent,
    target_name,
    target_value,
    with_interval,
)
from .sections import by_batch_size, joules_per_epoch
from .several_runs import mean_words
from .summary import name_with, row_name, verdicts

ROW_HEIGHT = 34
"""Pixels of a row in a chart with a row for each cell."""
HEIGHT = 280
"""Pixels of the height of the other charts."""
MAX_STEPS = 400
"""Points of a line of losses; of more steps evenly spaced ones are drawn."""
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07c00", "#2f8fc4", "#808080"]
"""Colours that colour-blind readers can tell apart (after M. Okabe and K. Ito, "Color Universal
Design", 2008), the light ones darker so that a white background does not hide them."""

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


def charts(comparison: Comparison) -> list[Chart]:
    """Return the charts that the comparison has figures for."""
    comparison = comparison.frozen()
    drawn = (
        draw(comparison)
        for draw in (
            ratios,
            rounds,
            first_epochs,
            losses,
            to_target,
            roofline,
            activity,
            memory,
            energy,
            batch_sizes,
            threads,
            cost,
        )
    )
    return [chart for chart in drawn if chart]


def ratios(comparison: Comparison) -> Chart | None:
    """Draw who is faster: the ratio of each row with its interval, and a line at 1."""
    found = _estimates(comparison, comparison.ratio)
    if len(found) < 2:
        return None
    base = comparison.settings.baseline or "the fastest"
    return Chart(
        "ratios",
        "Who is faster?",
        " ".join(verdicts(comparison)),
        "Seconds of a steady epoch relative to those of the row with 1.00 on the same device and "
        "threads, paired by round. " + _INTERVALS,
        _intervals(comparison, found, f"seconds relative to {base}", at=1.0),
        ["row", f"× {base}"],
        _cells(comparison, found),
    )


def rounds(comparison: Comparison) -> Chart | None:
    """Draw how sure the figures are: every steady epoch in the order in which it ran."""
    values: Values = []
    cells = []
    # the clock of a run that was resumed may have begun anew: order by round, then by the clock
    steady = ((e.round, e.started) for r in comparison.results for e in r.steady)
    position = {key: index for index, key in enumerate(sorted(steady), 1)}
    for result in _measured(comparison):
        middle = median(comparison.seconds(result))
        for epoch in result.steady:
            seconds = comparison.per_epoch(result, epoch)
            values.append(
                _labels(comparison, result)
                | {
                    "position": position[epoch.round, epoch.started],
                    "percent": 100 * (seconds / middle - 1),
                    "seconds": seconds,
                    "round": epoch.round,
                }
            )
        wall = [comparison.per_epoch(result, epoch) for epoch in result.steady]
        shares = [f"{(s / middle - 1):+.1%}" for s in (min(wall), max(wall))]
        cells.append([row_name(comparison, result), str(len(wall)), number(middle), *shares])
    if not values:
        return None
    widest = max(abs(value["percent"]) for value in values)
    chart = alt.Chart(_data(values)).encode(
        x=alt.X("position:Q", title="steady epochs, in the order in which they ran"),
        y=alt.Y("percent:Q", title="seconds, % from the row's median"),
        color=_colour(comparison),
        tooltip=["row:N", "round:O", _figure("seconds"), _figure("percent")],
    )
    line = alt.Chart(_data([{"percent": 0}])).mark_rule(strokeDash=[4, 4]).encode(y="percent:Q")
    return Chart(
        "rounds",
        "How sure is it?",
        f"No epoch lies more than {widest:.0f} % from its row's median."
        if widest < 5
        else f"Epochs lie up to {widest:.0f} % from their row's median.",
        "Each mark is a steady epoch, in the order in which they ran. A slope is a drift of the "
        "machine, which the paired ratios cancel; a single mark far away is a disturbance.",
        _specification(alt.layer(line, chart.mark_point(filled=True, size=60, opacity=0.8))),
        ["row", "epochs", "median s", "fastest", "slowest"],
        cells,
    )


def first_epochs(comparison: Comparison) -> Chart | None:
    """Draw what the first epoch costs, beside the steady one."""
    values: Values = []
    cells = []
    most: tuple[float, str] = (0.0, "")
    for result in _ranked(comparison):
        first, steady = comparison.first_epoch(result), comparison.steady(result)
        if first is None or steady is None:
            continue
        for kind, estimate in (("first epoch", first), ("steady epoch", steady)):
            values.append(_labels(comparison, result) | {"kind": kind, "seconds": estimate.median})
        figures = comparison.runtime_figures(result)
        compilation = [f"{n} {number(f)}" for n, (f, _) in figures.items() if "compil" in n]
        cells.append(
            [
                row_name(comparison, result),
                number(first.median),
                number(steady.median),
                *compilation,
            ]
        )
        most = max(most, (first.median / steady.median, row_name(comparison, result)))
    if not values:
        return None
    line = alt.Chart(_data(values)).encode(
        y=_row_axis(comparison), color=_colour(comparison, legend=False)
    )
    x = alt.X("seconds:Q", title="seconds of an epoch", scale=alt.Scale(zero=True))
    grey = alt.Legend(orient="top", symbolFillColor="#808080", symbolStrokeColor="#808080")
    shape = alt.Shape(
        "kind:N", title=None, scale=alt.Scale(range=["diamond", "circle"]), legend=grey
    )
    chart = alt.layer(
        line.mark_line(strokeWidth=2).encode(x=x, detail="row:N"),
        line.mark_point(filled=True, size=110, opacity=1).encode(
            x=x, shape=shape, tooltip=["row:N", "kind:N", _figure("seconds")]
        ),
    )
    width = max(map(len, cells))
    return Chart(
        "first-epochs",
        "What does the first epoch cost?",
        f"The first epoch takes at most {most[0]:.2g} times as long as a steady one: {most[1]}.",
        "A first epoch begins in a new process, with compilation and tuning. What a runtime tells "
        "of its own compilation is in the table.",
        _specification(chart, ROW_HEIGHT * len(cells)),
        ["row", "first epoch s", "steady epoch s", *["of it"] * (width - 3)],
        [[*row, *[""] * (width - len(row))] for row in cells],
    )


def losses(comparison: Comparison) -> Chart | None:
    """Draw whether all rows learn the same: the loss of each step of the first epoch.

    Of several batch sizes, only rows of the first one are drawn.
    """
    values: Values = []
    cells, last, diverged = [], list[float](), list[str]()
    trained = [result for result in _measured(comparison) if result.cell.task == TRAIN]
    for result in [r for r in trained if r.cell.work == trained[0].cell.work]:
        known = [(i, x) for i, x in enumerate(result.first_losses, 1) if x is not None]
        every = -(-len(known) // MAX_STEPS) or 1
        values += [_labels(comparison, result) | {"step": i, "loss": x} for i, x in known[::every]]
        if known:
            cells.append(
                [row_name(comparison, result), f"{known[0][1]:.6g}", f"{known[-1][1]:.6g}"]
            )
            last.append(known[-1][1])
        if None in result.first_losses:
            diverged.append(row_name(comparison, result))
    if not values:
        return None
    spread = (max(last) - min(last)) / abs(min(last)) if min(last) else 0.0
    chart = alt.Chart(_data(values)).mark_line(opacity=0.8, strokeWidth=2.5, point=True)
    chart = chart.encode(
        x=alt.X("step:Q", title="step of the first epoch", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("loss:Q", title="training loss", scale=alt.Scale(zero=False)),
        color=_colour(comparison),
        strokeDash=alt.StrokeDash("row:N", title=None, legend=None),
        tooltip=["row:N", "step:Q", _figure("loss")],
    )
    return Chart(
        "losses",
        "Do they learn the same?",
        f"Losses that are not finite: {joined(diverged)}."
        if diverged
        else f"The losses of the last step lie within {spread:.1%} of one another.",
        "All rows start from the same weights and see the same batches, so their lines cover one "
        "another; with dropouts they differ by chance.",
        _specification(chart),
        ["row", "loss of the first step", "of the last step"],
        cells,
    )


def to_target(comparison: Comparison) -> Chart | None:
    """Draw the accuracy, or the loss, over the seconds of training, where there was a target."""
    target = comparison.settings.target
    if target is None:
        return None
    values: Values = []
    cells, met = [], []
    for result in comparison.results:
        seconds = 0.0
        for epoch in result.to_target:
            seconds += epoch.wall_seconds
            values.append(
                _labels(comparison, result) | {"seconds": seconds, target.what: epoch.reached}
            )
        if result.to_target:
            reached, name = result.to_target[-1].reached, row_name(comparison, result)
            cells.append([name, number(seconds), target_value(target, reached)])
            met += [name] if target.met_by(reached) else []
    if not values:
        return None
    is_share = target.what == "accuracy"
    axis = alt.Axis(format="%" if is_share else "g")
    tip = alt.Tooltip(f"{target.what}:Q", format=".1%" if is_share else ".3f")
    chart = (
        alt.Chart(_data(values))
        .mark_line(point=True, strokeWidth=2.5)
        .encode(
            x=alt.X("seconds:Q", title="seconds of training"),
            y=alt.Y(f"{target.what}:Q", title=f"test {target.what}", axis=axis),
            color=_colour(comparison),
            detail="row:N",
            tooltip=["row:N", _figure("seconds"), tip],
        )
    )
    line = alt.Chart(_data([{target.what: target.value}])).mark_rule(strokeDash=[4, 4])
    goal = f"an accuracy of {target_name(target)}" if is_share else target_name(target)
    return Chart(
        target.what,
        f"How long until {goal}?",
        f"{joined(met)} reached it." if met else "No row reached it.",
        "Training from the initial weights, tested after each epoch; the tests do not count.",
        _specification(alt.layer(line.encode(y=f"{target.what}:Q"), chart)),
        ["row", "seconds", target.what],
        cells,
    )


def roofline(comparison: Comparison) -> Chart | None:
    """Draw how close each row comes to what the device can do: its two edges, and a point a row."""
    found = [
        (result, gflops, peak)
        for result in _ranked(comparison)
        if result.cell.task == TRAIN
        and (gflops := comparison.gflops(result))
        and (peak := comparison.peak(result))
    ]
    if not found or "trained_parameters" not in comparison.model:
        return None
    points: Values = []
    edges: Values = []
    cells = []
    intensities = set[float]()
    for result, gflops, peak in found:
        flops_per_byte = intensity(comparison.model, result.cell.batch_size)
        intensities.add(flops_per_byte)
        limit = min(peak.gflops, flops_per_byte * peak.copy_gigabytes)
        points.append(
            _labels(comparison, result) | {"FLOP per byte": flops_per_byte, "GFLOP/s": gflops}
        )
        cells.append(
            [row_name(comparison, result), number(gflops), number(limit), percent(gflops / limit)]
        )
        ridge = peak.gflops / peak.copy_gigabytes
        place = f"{result.cell.device}, {count(result.cell.threads, 'thread')}"
        for at in (min(ridge, flops_per_byte) / 4, ridge, 4 * max(ridge, flops_per_byte)):
            limit = min(peak.gflops, at * peak.copy_gigabytes)
            edges.append({"place": place, "FLOP per byte": at, "GFLOP/s": limit})
    edges = [dict(pairs) for pairs in dict.fromkeys(tuple(edge.items()) for edge in edges)]
    log = alt.Scale(type="log")
    x = alt.X("FLOP per byte:Q", title="FLOP for each byte that a step moves", scale=log)
    y = alt.Y("GFLOP/s:Q", scale=log)
    line = alt.Chart(_data(edges)).mark_line(strokeWidth=2, color="#808080")
    marks = alt.Chart(_data(points)).mark_point(filled=True, size=110, opacity=1)
    chart = alt.layer(
        line.encode(x=x, y=y, detail="place:N", tooltip=["place:N", _figure("GFLOP/s")]),
        marks.encode(x=x, y=y, color=_colour(comparison), tooltip=["row:N", _figure("GFLOP/s")]),
    )
    best = max(found, key=lambda entry: entry[1] / entry[2].gflops)
    closest, share = row_name(comparison, best[0]), best[1] / best[2].gflops
    return Chart(
        "roofline",
        "How close to the machine?",
        f"{closest} comes closest: {share:.0%} of the best matrix multiplication.",
        f"The edges were measured: a copy (left) and a matrix multiplication (right), the best of "
        f"all rows. The model's step has {joined(f'{x:.3g}' for x in sorted(intensities))} FLOP "
        "for each byte, counted from its description: each activation is moved five times (written "
        "and read forward, read backward, its gradient written and read), each weight six times a "
        "step. What stays in a cache is not moved, so a row may lie above the left edge.",
        _specification(chart),
        ["row", "GFLOP/s", "edge at this intensity", "share of it"],
        cells,
    )


def activity(comparison: Comparison) -> Chart | None:
    """Draw the cores and the GPU in use over a steady epoch, of each row the last one sampled."""
    values: Values = []
    cells = []
    for result in _ranked(comparison):
        usage = next((u for u in reversed(result.usage) if u.seconds), None)
        if usage is None:
            continue
        for kind, series in (("cores", usage.cores), ("share of the GPU", usage.gpu_shares)):
            values += [
                _labels(comparison, result) | {"seconds": at, "in use": value, "kind": kind}
                for at, value in zip(usage.seconds, series, strict=False)
                if value is not None
            ]
        busy = percent(usage.gpu_busy)
        cells.append(
            [
                row_name(comparison, result),
                number(comparison.cores(result)),
                number(usage.cores_peak),
                percent(comparison.system_share(result)),
                busy,
            ]
        )
    if not values:
        return None
    chart = (
        alt.Chart(_data(values))
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("seconds:Q", title="seconds of a steady epoch"),
            y=alt.Y("in use:Q", title="cores, or share of the GPU, in use"),
            color=_colour(comparison),
            strokeDash=alt.StrokeDash("kind:N", title=None, legend=None),
            detail=["row:N", "kind:N"],
            tooltip=["row:N", "kind:N", _figure("in use")],
        )
    )
    most = max(cells, key=lambda row: float(row[1].replace(",", "")))
    return Chart(
        "activity",
        "What is in use?",
        f"{most[0]} keeps most cores at work: {most[1]} on average.",
        "Cores in use from one sample to the next, ten a second, over the last steady epoch; of a "
        "row on a GPU also the share of time in which the GPU worked (dashed).",
        _specification(chart),
        ["row", "cores, mean", "cores, most", "CPU time in the kernel", "GPU busy"],
        cells,
    )


def memory(comparison: Comparison) -> Chart | None:
    """Draw the peak memory of each row."""
    found = [(r, r.peak_memory / 2**20) for r in _ranked(comparison) if r.peak_memory]
    if not found:
        return None
    most, mebibytes = max(found, key=lambda pair: pair[1])
    values = [_labels(comparison, r) | {"mebibytes": value} for r, value in found]
    chart = (
        alt.Chart(_data(values))
        .mark_bar(height=14)
        .encode(
            x=alt.X("mebibytes:Q", title="peak memory, MiB"),
            y=_row_axis(comparison),
            color=_colour(comparison, legend=False),
            tooltip=["row:N", alt.Tooltip("mebibytes:Q", format=",.0f")],
        )
    )
    return Chart(
        "memory",
        "How much memory does it take?",
        f"{row_name(comparison, most)} takes most: {integer(mebibytes)} MiB.",
        "On the CPU the most resident memory of the process during an epoch; on a GPU the most "
        "that the framework's allocator had given out.",
        _specification(chart, ROW_HEIGHT * len(found)),
        ["row", "peak MiB"],
        [[row_name(comparison, r), integer(value)] for r, value in found],
    )


def energy(comparison: Comparison) -> Chart | None:
    """Draw the energy of a steady epoch of each row, that of the CPU and of the GPU."""
    kinds = {"CPU": "cpu_joules", "GPU": "gpu_joules"}
    found = [
        (result, device, joules)
        for result in _ranked(comparison)
        for device, figure in kinds.items()
        if (joules := joules_per_epoch(result, figure)) is not None
    ]
    if not found:
        return None
    totals: dict[str, float] = {}
    for result, _, joules in found:
        name = row_name(comparison, result)
        totals[name] = totals.get(name, 0.0) + joules
    most = max(totals, key=lambda name: totals[name])
    values = [
        _labels(comparison, r) | {"device": device, "joules": joules} for r, device, joules in found
    ]
    chart = (
        alt.Chart(_data(values))
        .mark_bar(height=14)
        .encode(
            x=alt.X("sum(joules):Q", title="energy of a steady epoch, J"),
            y=_row_axis(comparison),
            color=alt.Color("device:N", title=None, scale=alt.Scale(range=PALETTE)),
            tooltip=["row:N", "device:N", _figure("joules")],
        )
    )
    return Chart(
        "energy",
        "How much energy does it take?",
        f"{most} takes most: {number(totals[most])} J for a steady epoch.",
        "Of the whole processor packages and of the whole GPU, other processes included.",
        _specification(chart, ROW_HEIGHT * len(totals)),
        ["row", "device", "J"],
        [[row_name(comparison, r), device, number(joules)] for r, device, joules in found],
    )


def threads(comparison: Comparison) -> Chart | None:
    """Draw the speed-up of each framework by its number of threads, and the ideal one."""
    values: Values = []
    cells = []
    fewest: dict[str, int] = {}
    for result in _ranked(comparison):
        speedup = comparison.thread_speedup(result)
        number_of_threads = result.cell.threads
        if result.cell.device == "cpu":
            title = result.cell.label
            fewest[title] = min(number_of_threads, fewest.get(title, number_of_threads))
        if speedup:
            values.append(
                _labels(comparison, result)
                | {"threads": number_of_threads, "speed-up": speedup.median}
            )
            cells.append(
                [row_name(comparison, result), str(number_of_threads), with_interval(speedup)]
            )
    if not values:
        return None
    for title in {value["framework"]: None for value in values}:
        values.append({"framework": title, "row": title, "threads": fewest[title], "speed-up": 1.0})
    most = max(value["threads"] for value in values)
    least = min(value["threads"] for value in values)
    ideal = [{"threads": n, "speed-up": n / least} for n in (least, most)]
    x = alt.X("threads:Q", title="CPU threads", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("speed-up:Q", title="speed-up over the fewest threads")
    best = max(cells, key=lambda row: float(row[2].split()[0].replace(",", "")))
    chart = alt.layer(
        alt.Chart(_data(ideal)).mark_line(strokeDash=[4, 4], color="#808080").encode(x=x, y=y),
        alt.Chart(_data(values))
        .mark_line(point=True, strokeWidth=2.5)
        .encode(x=x, y=y, color=_colour(comparison), tooltip=["row:N", _figure("speed-up")]),
    )
    return Chart(
        "threads",
        "What do more threads give?",
        f"{best[0]} gains most: {best[2]} times.",
        "The dashed line is the ideal: twice the threads, twice the speed.",
        _specification(chart),
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
        _labels(comparison, result)
        | {
            "line": name_with(comparison, result, "device", "threads", "task"),
            "task": result.cell.task,
            "batch size": result.cell.batch_size,
        }
        | {f"ms {name}": 1e3 * value for name, value in _bounds(seconds).items()}
        for result, seconds in found
    ]
    log = alt.Scale(type="log", nice=False, padding=12)
    sizes = sorted({value["batch size"] for value in values})
    x = alt.X("batch size:Q", title="examples per step", scale=log, axis=alt.Axis(values=sizes))
    vertical = alt.Scale(type="log")
    y = alt.Y("ms median:Q", title="ms per step", scale=vertical)
    low = alt.Y("ms low:Q", title="ms per step", scale=vertical)
    marks = alt.Chart(_data(values)).encode(x=x, color=_colour(comparison), detail="line:N")
    dash = {}
    if len({value["task"] for value in values}) > 1:
        legend = alt.Legend(orient="top", title=None)
        solid_and_dashed = alt.Scale(domain=list(TASKS), range=[[1, 0], [4, 3]])
        dash = {"strokeDash": alt.StrokeDash("task:N", legend=legend, scale=solid_and_dashed)}
    tooltip = ["row:N", *(_figure(f"ms {name}") for name in ("median", "low", "high"))]
    chart = alt.layer(
        marks.mark_line(strokeWidth=2.5).encode(y=y, **dash),
        marks.mark_rule(strokeWidth=3).encode(y=low, y2="ms high"),
        marks.mark_point(filled=True, size=70, opacity=1).encode(y=y, tooltip=tooltip),
    )
    cells = [
        [row_name(comparison, result), with_interval(seconds.scaled(1e3))]
        for result, seconds in found
    ]
    return Chart(
        "batch-sizes",
        "How does the cost grow with the batch?",
        " ".join(verdicts(comparison)),
        "Both axes are logarithmic. Where a line is flat, the cost of calls dominates; where it "
        "rises as the batch does, the arithmetic. The vertical lines are 95 % intervals, or the "
        "ranges of fewer than six rounds.",
        _specification(chart),
        ["row", "ms per step"],
        cells,
    )


def cost(comparison: Comparison) -> Chart | None:
    """Draw the cost of 1,000 steady epochs, where there are prices."""

    def of_thousand(result: CellResult) -> Estimate | None:
        cost = comparison.cost(result)
        return cost.scaled(1000) if cost and comparison.is_ranked(result) else None

    found = _estimates(comparison, of_thousand)
    if not found:
        return None
    cheapest, estimate = min(found, key=lambda pair: pair[1].median)
    return Chart(
        "cost",
        "What does it cost?",
        f"{row_name(comparison, cheapest)} is cheapest: {number(estimate.median)} for 1,000 "
        "epochs.",
        "At the price of the device's hour, in its currency. " + _INTERVALS,
        _intervals(comparison, found, "cost of 1,000 steady epochs"),
        ["row", "cost of 1,000 epochs"],
        _cells(comparison, found),
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
        for result in _measured(comparison):
            other = same_group(comparison, result, base)
            ratio = comparison.paired(result, other) if other else None
            if ratio is None or other is result:
                continue
            where = f"{label}, {result.cell.device}, {count(result.cell.threads, 'thread')}"
            if len({r.cell.work for c in comparisons for r in c.results}) > 1:
                where += f", {result.cell.task}, batches of {result.cell.batch_size:,}"
            values.append(_labels(comparison, result) | {"row": where, **_bounds(ratio)})
            cells.append([where, result.cell.label, with_interval(ratio)])
    if not values:
        return None
    frameworks = list(dict.fromkeys(value["framework"] for value in values))
    means = mean_words(mean_ratios(comparisons, base))
    scale = alt.Scale(type="log")
    x = f"seconds relative to {base}"
    y = alt.Y("row:N", title=None, sort=None, axis=alt.Axis(labelLimit=220))
    marks = alt.Chart(_data(values)).encode(
        y=y, color=_colour_of(frameworks), yOffset="framework:N"
    )
    line = alt.Chart(_data([{"median": 1}])).mark_rule(strokeDash=[4, 4])
    chart = alt.layer(
        line.encode(x=alt.X("median:Q", title=x, scale=scale)),
        marks.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q", title=x, scale=scale), x2="high"),
        marks.mark_point(filled=True, size=90, opacity=1).encode(
            x=alt.X("median:Q", title=x, scale=scale),
            tooltip=["row:N", "framework:N", _figure("median"), _figure("low"), _figure("high")],
        ),
    )
    rows = len({value["row"] for value in values})
    return Chart(
        "several",
        "Does it hold over the runs?",
        means,
        "Each ratio is of the steady epochs of one run, paired by round. " + _INTERVALS,
        _specification(chart, ROW_HEIGHT * (rows + 1)),
        ["run", "framework", f"× {base}"],
        cells,
    )


_INTERVALS = (
    "A dot is the median of the rounds; the line is its 95 % interval, or the range of fewer than "
    "six rounds. Left is better."
)
MAX_LEGEND = 8
"""Frameworks that a legend names; of more the tooltips tell."""
Found = list[tuple[CellResult, Estimate]]


def _measured(comparison: Comparison) -> list[CellResult]:
    """Return the cells with a finished round."""
    return [result for result in comparison.results if result.steady]


def _ranked(comparison: Comparison) -> list[CellResult]:
    """Return the cells whose figures may be compared: no answer is drawn from others."""
    return [result for result in comparison.results if comparison.is_ranked(result)]


def _estimates(comparison: Comparison, figure: Any) -> Found:
    found = ((result, figure(result)) for result in _measured(comparison))
    return [(result, estimate) for result, estimate in found if estimate]


def _cells(comparison: Comparison, found: Found) -> list[list[str]]:
    return [[row_name(comparison, result), with_interval(estimate)] for result, estimate in found]


def _labels(comparison: Comparison, result: CellResult) -> dict[str, Any]:
    return {"row": row_name(comparison, result), "framework": result.cell.label}


def _intervals(
    comparison: Comparison, found: Found, title: str, at: float | None = None
) -> dict[str, Any]:
    """Return a chart with a row for each estimate: a dot on a line. at: of a vertical line."""
    values = [_labels(comparison, result) | _bounds(estimate) for result, estimate in found]
    scale = alt.Scale(zero=True, nice=True)
    rows = alt.Chart(_data(values)).encode(
        y=_row_axis(comparison), color=_colour(comparison, legend=False)
    )
    layers = [
        rows.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q", title=title, scale=scale), x2="high"),
        rows.mark_point(filled=True, size=110, opacity=1).encode(
            x=alt.X("median:Q", title=title, scale=scale),
            tooltip=["row:N", _figure("median"), _figure("low"), _figure("high")],
        ),
    ]
    if at is not None:
        line = alt.Chart(_data([{"median": at}])).mark_rule(strokeDash=[4, 4])
        layers.insert(0, line.encode(x=alt.X("median:Q", title=title, scale=scale)))
    return _specification(alt.layer(*layers), ROW_HEIGHT * len(found))


def _bounds(estimate: Estimate) -> dict[str, float]:
    """Return the median and the ends of the line that is drawn through it."""
    return {
        "median": estimate.median,
        "low": estimate.minimum if estimate.low is None else estimate.low,
        "high": estimate.maximum if estimate.high is None else estimate.high,
    }


def _row_axis(comparison: Comparison) -> alt.Y:
    """Return the axis with a row for each cell, in the order of the table."""
    order = [row_name(comparison, result) for result in comparison.results]
    return alt.Y("row:N", title=None, sort=order, axis=alt.Axis(labelLimit=160))


def _colour(comparison: Comparison, legend: bool = True) -> alt.Color:
    """Return the colour of a framework, the same in every chart.

    legend: whether the chart needs one; where each row has a label it does not.
    """
    titles = list(dict.fromkeys(result.cell.label for result in comparison.results))
    return _colour_of(titles, legend)


def _colour_of(titles: list[str], legend: bool = True) -> alt.Color:
    colours = [PALETTE[index % len(PALETTE)] for index in range(len(titles))]
    scale = alt.Scale(domain=titles, range=colours)
    top = alt.Legend(orient="top", columns=2, symbolType="circle")
    shown = top if legend and len(titles) <= MAX_LEGEND else None
    return alt.Color("framework:N", title=None, scale=scale, legend=shown)


def _figure(name: str) -> alt.Tooltip:
    return alt.Tooltip(f"{name}:Q", format=".3~g")


def _data(values: Values) -> alt.InlineData:
    return alt.InlineData(values=values)


def _specification(chart: Any, height: int = HEIGHT) -> dict[str, Any]:
    """Return the chart as wide as its place on the page, and `height` pixels high."""
    return chart.properties(width="container", height=height).to_dict()
