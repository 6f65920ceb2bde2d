"""Draw what is learned: the losses, and the way to a target."""

from __future__ import annotations

import altair as alt

from ...results.comparison import Comparison
from ...results.epochs import TRAIN
from ..formatting import joined, number, target_name, target_value
from ..row_names import row_name
from .drawing import (
    Chart,
    Values,
    colour,
    dashed_line,
    data,
    figure,
    labels,
    measured,
    specification,
    text,
)

MAX_STEPS = 400
"""Points of a line of losses; of more steps evenly spaced ones are drawn."""


def losses(comparison: Comparison) -> Chart | None:
    """Draw whether all rows learn the same: the loss of each step of the first epoch.

    Of several batch sizes, only rows of the first one are drawn.
    """
    trained = [r for r in measured(comparison) if r.cell.task == TRAIN and r.first_losses]
    shown = [r for r in trained if r.cell.work == trained[0].cell.work]
    finite = [
        (result, found)
        for result in shown
        if (found := [(i, x) for i, x in enumerate(result.first_losses, 1) if x is not None])
    ]
    if not finite:
        return None
    values: Values = [
        labels(comparison, result) | {"step": i, "loss": x}
        for result, found in finite
        for i, x in found[:: -(-len(found) // MAX_STEPS)]
    ]
    diverged = [row_name(comparison, result) for result in shown if None in result.first_losses]
    common = min(len(result.first_losses) for result in shown)
    last = [before[-1] for _, found in finite if (before := [x for i, x in found if i <= common])]
    least = min(last, default=0.0)
    spread = (max(last) - least) / abs(least) if least else 0.0
    chart = alt.Chart(data(values)).mark_line(opacity=0.8, strokeWidth=2.5, point=True)
    chart = chart.encode(
        x=alt.X("step:Q", title="step of the first epoch", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("loss:Q", title="training loss", scale=alt.Scale(zero=False)),
        color=colour(comparison),
        strokeDash=alt.StrokeDash("row:N", title=None, legend=None),
        tooltip=[text("row:N"), text("step:Q"), figure("loss")],
    )
    return Chart(
        "losses",
        "Do they learn the same?",
        f"Losses that are not finite: {joined(diverged)}."
        if diverged
        else f"The losses of step {common:,} lie within {spread:.1%} of one another.",
        "All rows start from the same weights and see the same batches, so their lines cover one "
        "another; with dropouts they differ by chance.",
        specification(chart),
        ["row", "loss of the first step", "of the last step"],
        [
            [row_name(comparison, result), f"{found[0][1]:.6g}", f"{found[-1][1]:.6g}"]
            for result, found in finite
        ],
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
                labels(comparison, result) | {"seconds": seconds, target.what: epoch.reached}
            )
        if result.to_target:
            reached, name = result.to_target[-1].reached, row_name(comparison, result)
            cells.append([name, number(seconds), target_value(target, reached)])
            if target.met_by(reached):
                met.append(name)
    if not values:
        return None
    is_share = target.what == "accuracy"
    axis = alt.Axis(format="%" if is_share else "g")
    tip = alt.Tooltip(f"{target.what}:Q", format=".1%" if is_share else ".3f")
    chart = (
        alt.Chart(data(values))
        .mark_line(point=True, strokeWidth=2.5)
        .encode(
            x=alt.X("seconds:Q", title="seconds of training"),
            y=alt.Y(f"{target.what}:Q", title=f"test {target.what}", axis=axis),
            color=colour(comparison),
            detail="row:N",
            tooltip=[text("row:N"), figure("seconds"), tip],
        )
    )
    line = dashed_line(target.what, target.value).encode(y=f"{target.what}:Q")
    goal = f"an accuracy of {target_name(target)}" if is_share else target_name(target)
    return Chart(
        target.what,
        f"How long until {goal}?",
        f"{joined(met)} reached it." if met else "No row reached it.",
        "Training from the initial weights, tested after each epoch; the tests do not count.",
        specification(alt.layer(line, chart)),
        ["row", "seconds", target.what],
        cells,
    )
