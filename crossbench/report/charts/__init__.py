"""Draw the page's charts: each answers one question, from the figures of one comparison.

Each is a Vega-Lite specification, made by Vega-Altair, with a table of the same figures for readers
who do not see it.
"""

from __future__ import annotations

from altair.utils.schemapi import debug_mode

from ...results.comparison import Comparison
from .drawing import Chart
from .layers import parts
from .learning import losses, to_target
from .machine import activity, roofline
from .runs import several
from .speed import batch_sizes, ratios, rounds, threads

__all__ = ["Chart", "charts", "several"]

CHARTS = (ratios, parts, rounds, losses, to_target, roofline, activity, batch_sizes, threads)
"""What draws a chart of a comparison, in the order of the page; None where it has no figures."""


def charts(comparison: Comparison) -> list[Chart]:
    """Return the charts that the comparison has figures for."""
    comparison = comparison.frozen()
    with debug_mode(False):  # without a validation of each part; see `specification`
        return [chart for draw in CHARTS if (chart := draw(comparison))]
