"""Say what each part of a training step takes in each cell, and where two cells differ."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from .cells import CellResult
from .parity import FLOAT64_BOUND
from .parts import Part, PartResult
from .statistics import Estimate, estimate, round_ratios

if TYPE_CHECKING:
    from .comparison import Comparison

MAX_NORM_DIFFERENCE = 1e-2
"""The largest relative difference of the norm of a part's gradients, in the timed run, from the
median of all frameworks: in float32 a near tie in a max-pool moves it by less. Dropouts, whose
masks each framework draws, move it by more, so nothing is said of a model that has one."""


@dataclass(frozen=True)
class PartFigures:
    """Hold what a part, and all equal to it, take of a training step in a cell.

    seconds: None where it was not measured. share: of the step. ratio: to the fastest cell of the
    group, paired by round; None where one of them is not clearly over 0. peak_share: FLOPs per
    second over those of the best matrix multiplication. problem: why there are no figures, in a
    line.
    """

    part: Part
    seconds: Estimate | None
    share: float | None
    ratio: Estimate | None
    peak_share: float | None
    problem: str | None


def measured(comparison: Comparison) -> list[CellResult]:
    """Return the cells of which parts were measured."""
    return [r for r in comparison.results if any(found.times for found in r.parts.values())]


def figures(comparison: Comparison, result: CellResult, part: Part) -> PartFigures:
    """Return the figures of a part in a cell."""
    problem = _problem(comparison, result, part)
    by_round = {} if problem else _by_round(result, part)
    if not by_round:
        return PartFigures(part, None, None, None, None, problem)
    seconds, step = estimate(list(by_round.values())), comparison.step_seconds(result)
    flops = part.flops * part.count * result.cell.batch_size
    peak = comparison.peak(result)
    reaches = None
    if flops and peak and seconds.is_over(0):
        reaches = flops / seconds.median / 1e9 / peak.gflops
    return PartFigures(
        part,
        seconds,
        seconds.median / step.median if step else None,
        _ratio(comparison, result, part),
        reaches,
        None,
    )


def total_share(comparison: Comparison, result: CellResult) -> float | None:
    """Return the sum of all parts, divided by the step; None where a part has no figure."""
    shares = [figures(comparison, result, part).share for part in comparison.parts]
    return None if None in shares else sum(share for share in shares if share is not None)


def differences(
    comparison: Comparison, slower: CellResult, faster: CellResult
) -> list[tuple[Part, float, float]]:
    """Return the parts with their seconds in both cells, those first that differ most."""
    found = []
    for part in comparison.parts:
        pair = [figures(comparison, result, part).seconds for result in (slower, faster)]
        a, b = (seconds.median if seconds else None for seconds in pair)
        if a is not None and b is not None:
            found.append((part, a, b))
    return sorted(found, key=lambda entry: entry[2] - entry[1])


def _by_round(result: CellResult, part: Part) -> dict[int, float]:
    """Return the seconds of all equal layers by round."""
    return {t.round: t.seconds * part.count for t in result.parts[part.name].times}


def _ratio(comparison: Comparison, result: CellResult, part: Part) -> Estimate | None:
    """Return the part's seconds relative to those of the fastest cell of the group."""
    group = [
        other
        for other in measured(comparison)
        if other.cell.group == result.cell.group
        and _problem(comparison, other, part) is None
        and _by_round(other, part)
    ]
    seconds = {other.name: _by_round(other, part) for other in group}
    fastest = min(seconds.values(), key=lambda by_round: median(by_round.values()))
    own = seconds[result.name]
    if min(fastest.values()) <= 0 or min(own.values()) <= 0:
        return None
    ratios = list(round_ratios(own, fastest).values())
    return estimate(ratios) if ratios else None


def _problem(comparison: Comparison, result: CellResult, part: Part) -> str | None:
    """Return why the part's figures in the cell must not be shown, in a line, or None."""
    found = result.parts.get(part.name)
    if found is None:
        return "it was not measured"
    return _own_problem(found) or _odd_norm(comparison, found, part)


def _own_problem(found: PartResult) -> str | None:
    """Return the same, without comparing the part to that of others."""
    if found.problem is not None:
        return found.problem
    if found.deviation is not None and found.deviation <= FLOAT64_BOUND:
        return None
    size = "not finite" if found.deviation is None else f"off by {found.deviation:.1e}"
    return f"it does not do the same work: its gradients are {size} in float64"


def _odd_norm(comparison: Comparison, found: PartResult, part: Part) -> str | None:
    """Return that the timed gradients differ from those of most frameworks, or None."""
    if comparison.reference is None or comparison.reference.masked:
        return None
    proved = [r.parts[part.name] for r in comparison.results if part.name in r.parts]
    norms = [
        time.gradient_norm
        for other in proved
        for time in other.times[:1]
        if time.gradient_norm is not None and _own_problem(other) is None
    ]
    for time in found.times:
        own = time.gradient_norm
        if own is not None and abs(own - median(norms)) > MAX_NORM_DIFFERENCE * median(norms):
            return (
                "it does not do the same work where it is timed: the norm of its gradients is "
                f"{own:.4g}, not {median(norms):.4g}"
            )
    return None
