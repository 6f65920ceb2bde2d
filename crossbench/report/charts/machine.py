"""Draw how much of the machine each row uses."""

from __future__ import annotations

from typing import Any

import altair as alt

from ...results.comparison import Comparison
from ...results.epochs import TRAIN
from ...results.machine import Peak
from ...results.roofline import intensity
from ..formatting import count, joined, number, percent
from ..row_names import row_name
from .drawing import Chart, Values, colour, data, figure, labels, ranked, specification, text


def roofline(comparison: Comparison) -> Chart | None:
    """Draw how close each row comes to what the device can do: its two edges, and a point a row."""
    found = [
        (result, gflops, peak)
        for result in ranked(comparison)
        if result.cell.task == TRAIN
        and (gflops := comparison.gflops(result))
        and (peak := comparison.peak(result))
    ]
    if not found:
        return None
    points: Values = []
    edges: dict[tuple[str, float], dict[str, Any]] = {}
    cells = []
    intensities = set[float]()
    for result, gflops, peak in found:
        compute = result.cell.compute
        flops_per_byte = intensity(comparison.model, result.cell.batch_size, compute)
        intensities.add(flops_per_byte)
        limit = _limit(peak, flops_per_byte)
        points.append(
            labels(comparison, result) | {"FLOP per byte": flops_per_byte, "GFLOP/s": gflops}
        )
        cells.append(
            [row_name(comparison, result), number(gflops), number(limit), percent(gflops / limit)]
        )
        ridge = peak.gflops / peak.copy_gigabytes
        place = f"{result.cell.device}, {count(result.cell.threads, 'thread')}, {compute}"
        for at in (min(ridge, flops_per_byte) / 4, ridge, 4 * max(ridge, flops_per_byte)):
            edge = {"place": place, "FLOP per byte": at, "GFLOP/s": _limit(peak, at)}
            edges[place, at] = edge
    log = alt.Scale(type="log")
    x = alt.X("FLOP per byte:Q", title="FLOP for each byte that a step moves", scale=log)
    y = alt.Y("GFLOP/s:Q", scale=log)
    line = alt.Chart(data(list(edges.values()))).mark_line(strokeWidth=2, color="#808080")
    marks = alt.Chart(data(points)).mark_point(filled=True, size=110, opacity=1)
    chart = alt.layer(
        line.encode(x=x, y=y, detail="place:N", tooltip=[text("place:N"), figure("GFLOP/s")]),
        marks.encode(
            x=x, y=y, color=colour(comparison), tooltip=[text("row:N"), figure("GFLOP/s")]
        ),
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
        specification(chart),
        ["row", "GFLOP/s", "edge at this intensity", "share of it"],
        cells,
    )


def _limit(peak: Peak, flops_per_byte: float) -> float:
    """Return the GFLOP/s that the copy, or the matrix multiplication, allows."""
    return min(peak.gflops, flops_per_byte * peak.copy_gigabytes)


def activity(comparison: Comparison) -> Chart | None:
    """Draw the cores and the GPU in use over a steady epoch, of each row the last one sampled."""
    values: Values = []
    cells = []
    found = []
    for result in ranked(comparison):
        usage = next((u for u in reversed(result.usage) if u.seconds), None)
        if usage is None:
            continue
        found.append(result)
        for kind, series in (("cores", usage.cores), ("share of the GPU", usage.gpu_shares)):
            values += [
                labels(comparison, result) | {"seconds": at, "in use": value, "kind": kind}
                for at, value in zip(usage.seconds, series, strict=False)
                if value is not None
            ]
        cells.append(
            [
                row_name(comparison, result),
                number(comparison.cores(result)),
                number(usage.cores_peak),
                percent(comparison.system_share(result)),
                percent(usage.gpu_busy),
            ]
        )
    if not values:
        return None
    lines = alt.Chart(data(values)).mark_line(strokeWidth=2)
    chart = lines.encode(
        x=alt.X("seconds:Q", title="seconds of a steady epoch"),
        y=alt.Y("in use:Q", title="cores, or share of the GPU, in use"),
        color=colour(comparison),
        strokeDash=alt.StrokeDash("kind:N", title=None, legend=None),
        detail=["row:N", "kind:N"],
        tooltip=[text("row:N"), text("kind:N"), figure("in use")],
    )
    most = max(found, key=lambda result: comparison.cores(result) or 0.0)
    cores = number(comparison.cores(most))
    return Chart(
        "activity",
        "What is in use?",
        f"{row_name(comparison, most)} keeps most cores at work: {cores} on average.",
        "Cores in use from one sample to the next, ten a second, over the last steady epoch; of a "
        "row on a GPU also the share of time in which the GPU worked (dashed).",
        specification(chart),
        ["row", "cores, mean", "cores, most", "CPU time in the kernel", "GPU busy"],
        cells,
    )
