"""Say what each part of a training step takes in each cell, and where two cells differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from ..inputs.names import Compute
from .cells import CellResult, Group
from .figures import Figures, once
from .parity import FLOAT64_BOUND
from .parts import PartCost, PartResult
from .roofline import ACTIVATION_BYTES, VALUE_BYTES
from .statistics import Estimate, estimate, round_ratios

MAX_COLLECT_SECONDS = 0.5
"""Seconds that collecting garbage may take before a call that is timed, or as long as the call."""
MAX_NORM_DIFFERENCE = 1e-2
"""The largest relative difference of the norm of a part's gradients, in the timed run, from the
median of all frameworks with the same batch size and precision: in float32 a near tie in a max-pool
moves it by less, in bfloat16 rounding by 0.5 % in a LeNet. Dropouts, whose masks each framework
draws, move it by more, so nothing is said of a model that has one."""


@dataclass(frozen=True)
class PartFigures:
    """Hold what a part, and all equal to it, take of a training step in a cell.

    flops and bytes: in a step; 0 where the description gives none. seconds: None where it was not
    measured. share: of the step. ratio: to the fastest cell of the group, paired by round; None
    where one of them is not clearly over 0. peak_share: of the roofline, the larger of FLOPs per
    second over those of the best matrix multiplication and bytes per second over those of the best
    copy. problem: why there are no figures, in a line.
    """

    flops: float
    bytes: float
    seconds: Estimate | None
    share: float | None
    ratio: Estimate | None
    peak_share: float | None
    problem: str | None


def measured(comparison: Figures) -> list[CellResult]:
    """Return the cells of which a part was timed, or could not be."""
    return [
        result
        for result in comparison.results
        if any(found.times or _own_problem(found) for found in result.parts.values())
    ]


@once
def part_figures(comparison: Figures, part: PartCost) -> dict[str, PartFigures]:
    """Return the figures of a part in each cell that was measured, by the cell's name."""
    cells = measured(comparison)
    problems = _problems(comparison, cells, part)
    seconds = {r.name: _by_round(r, part) for r in cells if problems[r.name] is None}
    fastest: dict[Group, dict[int, float]] = {}
    for result in cells:
        if by_round := seconds.get(result.name):
            best = fastest.setdefault(result.cell.group, by_round)
            if median(by_round.values()) < median(best.values()):
                fastest[result.cell.group] = by_round
    return {
        r.name: _figures(comparison, r, part, seconds.get(r.name), fastest.get(r.cell.group))
        if problems[r.name] is None
        else replace(_unmeasured(r, part), problem=problems[r.name])
        for r in cells
    }


def _unmeasured(result: CellResult, part: PartCost) -> PartFigures:
    """Return what the description gives."""
    size = result.cell.batch_size
    of_example = part.example_bytes * ACTIVATION_BYTES[result.cell.compute] / VALUE_BYTES
    moved = part.count * (of_example * size + part.step_bytes)
    return PartFigures(part.flops * part.count * size, moved, None, None, None, None, None)


def _figures(
    comparison: Figures,
    result: CellResult,
    part: PartCost,
    by_round: dict[int, float] | None,
    fastest: dict[int, float] | None,
) -> PartFigures:
    found = _unmeasured(result, part)
    if not by_round or not fastest:
        return found
    seconds, step = estimate(list(by_round.values())), comparison.step_seconds(result)
    peak, ratio = comparison.peak(result), None
    if peak and seconds.is_over(0):
        least = max(found.flops / peak.gflops, found.bytes / peak.copy_gigabytes) / 1e9
        found = replace(found, peak_share=least / seconds.median or None)
    if min(fastest.values()) > 0 and min(by_round.values()) > 0:
        ratios = list(round_ratios(by_round, fastest).values())
        ratio = estimate(ratios) if ratios else None
    share = seconds.median / step.median if step else None
    return replace(found, seconds=seconds, share=share, ratio=ratio)


def total_share(comparison: Figures, result: CellResult) -> float | None:
    """Return the sum of all parts, divided by the step; None where a part has no figure."""
    shares = [part_figures(comparison, part)[result.name].share for part in comparison.parts]
    return None if None in shares else sum(share for share in shares if share is not None)


def differences(
    comparison: Figures, slower: CellResult, faster: CellResult
) -> list[tuple[PartCost, float, float]]:
    """Return the parts with their seconds in both cells, those first that differ most.

    What noise made negative is 0. Empty where a part has no figures in one of them: it might be the
    one that matters.
    """
    found = []
    for part in comparison.parts:
        by_cell = part_figures(comparison, part)
        a, b = by_cell[slower.name].seconds, by_cell[faster.name].seconds
        if a is None or b is None:
            return []
        found.append((part, max(0.0, a.median), max(0.0, b.median)))
    return sorted(found, key=lambda entry: entry[2] - entry[1])


def _by_round(result: CellResult, part: PartCost) -> dict[int, float]:
    """Return the seconds of all equal layers by round."""
    return {t.round: t.seconds * part.count for t in result.parts[part.name].times}


def _problems(
    comparison: Figures, cells: list[CellResult], part: PartCost
) -> dict[str, str | None]:
    """Return why the part's figures in each cell must not be shown, in a line, or None."""
    problems = {r.name: _own_problem(r.parts.get(part.name)) for r in cells}
    reference = comparison.reference
    if reference is None or reference.masked:
        return problems
    alike: dict[tuple[int, Compute], list[CellResult]] = {}
    for result in cells:
        if problems[result.name] is None:
            alike.setdefault((result.cell.batch_size, result.cell.compute), []).append(result)
    for rows in alike.values():
        proved = {r.name: r.parts[part.name] for r in rows}
        norms = [t.gradient_norm for found in proved.values() for t in found.times[:1]]
        known = [norm for norm in norms if norm is not None]
        if known:
            usual = median(known)
            problems |= {name: _odd_norm(found, usual) for name, found in proved.items()}
    return problems


def _own_problem(found: PartResult | None) -> str | None:
    """Return the same, without comparing the part to that of others."""
    if found is None:
        return "it was not measured"
    if found.problem is not None:
        return found.problem
    for time in found.times:
        if time.collect_seconds > max(MAX_COLLECT_SECONDS, time.with_seconds):
            return (
                f"collect_garbage() took {time.collect_seconds:.2g} s before a call of "
                f"{time.with_seconds:.2g} s: work must not move there"
            )
    if found.deviation is not None and found.deviation <= FLOAT64_BOUND:
        return None
    size = "not finite" if found.deviation is None else f"off by {found.deviation:.1e}"
    return (
        f"it does not do the same work: its gradients are {size} in float64 (at most "
        f"{FLOAT64_BOUND:.0e} is allowed)"
    )


def _odd_norm(found: PartResult, usual: float) -> str | None:
    """Return that the timed gradients have another norm than is usual, or None."""
    for time in found.times:
        own = time.gradient_norm
        if own is not None and abs(own - usual) > MAX_NORM_DIFFERENCE * usual:
            return (
                "it does not do the same work where it is timed: the norm of its gradients is "
                f"{own:.4g}, not {usual:.4g}"
            )
    return None
