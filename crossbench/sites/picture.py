"""Draw the picture that answers first: what each framework takes with each kind of model."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import altair as alt

from ..inputs.names import IDIOMATIC
from ..report.charts.drawing import PALETTE, Values, bounds, data
from ..report.formatting import count
from ..results.cells import Place
from .answers import answers, base
from .runs import Run

WIDTH, ROW = 310, 26
"""Pixels of a panel's width, and of a row in it."""
COLUMNS = 2
SHAPES = ["circle", "triangle-up", "square", "diamond", "cross"]
"""Of the idiomatic rows, which are filled, and of the variants, which are hollow."""
INK = "#010203"
"""The colour of the text and the lines in Vega-Lite, for which SVG has another one."""


def values(runs: Sequence[Run], place: Place) -> tuple[str, Values]:
    """Return the row that the others are relative to, and a value for each dot of the picture.

    A variant has a dot where every model of the panel has it.
    """
    cells = {m.label: m.cell for run in runs for m in run.measured}
    relative_to = base(runs) or ""
    found: Values = []
    for answer in answers(runs, place, relative_to=relative_to):
        panel = f"{answer.kind}, {count(len(answer.models), 'model')}"
        with_variants = answers(
            [run for run in runs if run.model in answer.models],
            place,
            idiomatic=False,
            relative_to=relative_to,
        )
        same = (other.ratios for other in with_variants if other.units == answer.units)
        more = {label: ratio for ratios in same for label, ratio in ratios.items()}
        for label, ratio in (answer.ratios | more).items():
            names = {"framework": cells[label].title, "variant": cells[label].variant}
            found.append({"panel": panel, **names, **bounds(ratio)})
    return relative_to, found


def svg(specification: dict[str, Any], ink: str = "currentColor") -> str:
    """Return the picture as SVG. ink: the colour of the text and the lines; by default that of the
    text around it.
    """
    drawn: str = import_module("vl_convert").vegalite_to_svg(specification)
    return drawn.replace(INK, ink)


def picture(runs: Sequence[Run], place: Place) -> dict[str, Any] | None:
    """Return the picture of a place as Vega-Lite, or None where nothing can be compared."""
    relative_to, dots = values(runs, place)
    if not dots:
        return None
    titles = list(dict.fromkeys(dot["framework"] for dot in dots))
    variants = [IDIOMATIC, *dict.fromkeys(d["variant"] for d in dots if d["variant"] != IDIOMATIC)]
    x = {
        name: alt.X(
            f"{name}:Q",
            title=f"seconds relative to {relative_to}'s",
            scale=alt.Scale(type="log", nice=False, padding=12),
            axis=alt.Axis(values=[0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50], format="~g"),
        )
        for name in ("low", "median")
    }
    colours = [PALETTE[index % len(PALETTE)] for index in range(len(titles))]
    rows = alt.Chart().encode(
        y=alt.Y("framework:N", title=None, sort=titles, axis=alt.Axis(ticks=False, domain=False)),
        color=alt.Color("framework:N", scale=alt.Scale(domain=titles, range=colours), legend=None),
    )
    shape = alt.Shape(
        "variant:N",
        title=None,
        scale=alt.Scale(domain=variants, range=SHAPES[: len(variants)]),
        legend=alt.Legend(orient="bottom") if len(variants) > 1 else None,
    )
    layered = alt.layer(
        alt.Chart().mark_rule(strokeDash=[4, 4]).encode(x=alt.datum(1)),
        rows.mark_rule(strokeWidth=2, opacity=0.6).encode(x=x["low"], x2="high"),
        *(
            rows.mark_point(size=90, opacity=1, strokeWidth=2, filled=filled)
            .encode(x=x["median"], shape=shape)
            .transform_filter(f"(datum.variant === '{IDIOMATIC}') === {str(filled).lower()}")
            for filled in (True, False)
        ),
        data=data(dots),
    ).properties(width=WIDTH, height=ROW * len(titles))
    panels = list(dict.fromkeys(dot["panel"] for dot in dots))
    facet = alt.Facet("panel:N", title=None, sort=panels)
    specified: dict[str, Any] = layered.facet(facet=facet, columns=COLUMNS).to_dict(validate=False)
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontWeight": "normal"}
    heads = {"labelFontSize": 13, "labelFontWeight": "bold", "labelAnchor": "start"}
    return specified | {
        "background": None,
        "config": {
            "view": {"stroke": None},
            "axis": text | {"gridColor": INK, "gridOpacity": 0.12, "tickColor": INK},
            "header": text | heads,
            "legend": text | {"symbolFillColor": INK, "symbolStrokeColor": INK},
            "rule": {"color": INK},
        },
    }
