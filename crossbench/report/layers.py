"""Draw what each part of a training step takes, and say which one explains that a row is slower."""

from __future__ import annotations

from ..results.breakdown import PartFigures, differences, measured, total_share
from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.parts import PartCost
from .formatting import grid, joined, number, percent, with_interval
from .row_names import row_name

MIN_EXPLAINED = 0.1
"""Share of what all parts take longer that a part must have to be named."""
MAX_NAMED_PARTS = 3
HEADERS = {
    "ms per step": "ms\nper step",
    "of the step": "of the\nstep",
    "× fastest": "\n× fastest",
    "of peak": "of\npeak",
    "GFLOP": "\nGFLOP",
    "MB": "\nMB",
}
"""Headers of two lines, where there is room for them."""
MIN_COLUMNS = 3
"""Columns of the narrowest table: the part, the row and its milliseconds."""
ADD_UP = (0.9, 1.1)
"""What the sum of the parts may be of the step without a word on it."""


def layers(comparison: Comparison, markdown: bool = False, width: int | None = None) -> str | None:
    """Return the table of the parts of a training step; None where none was measured.

    width: of a line, in characters: the last columns are left out where it is not enough.
    """
    cells = measured(comparison)
    rows = []
    for part in comparison.parts if cells else ():
        name = part_name(part)
        by_cell = comparison.part_figures(part)
        for result in cells:
            rows.append(part_columns(name, row_name(comparison, result), by_cell[result.name]))
            name = name if markdown else ""
    if not rows:
        return None
    columns = list(rows[0])
    for end in range(len(columns), MIN_COLUMNS, -1):
        table = grid(rows, columns[end:], markdown=markdown, headers=HEADERS)
        if width is None or max(map(len, table.splitlines())) <= width:
            return table
    return grid(rows, columns[MIN_COLUMNS:], headers=HEADERS)


def part_name(part: PartCost) -> str:
    """Return the name of a part, with the number of equal layers."""
    return part.name if part.count == 1 else f"{part.name} (×{part.count})"


def part_columns(name: str, cell: str, found: PartFigures) -> dict[str, str]:
    """Return the texts on a part in a row, by header."""
    return {
        "part": name,
        "framework": cell,
        "ms per step": with_interval(found.seconds, 1e3),
        "of the step": percent(found.share),
        "× fastest": with_interval(found.ratio),
        "of peak": percent(found.peak_share),
        "GFLOP": number(found.flops / 1e9 or None),
        "MB": number(found.bytes / 1e6 or None),
    }


def explanations(comparison: Comparison) -> list[str]:
    """Return a sentence for each row that is slower than the fastest: which parts explain it."""
    found, cells = [], measured(comparison)
    names = {result.name for result in cells}
    for result in cells:
        base, ratio = comparison.base(result), comparison.ratio(result)
        if base is None or ratio is None or ratio.median <= 1 or base.name not in names:
            continue
        parts = differences(comparison, result, base)
        if not parts:
            continue
        longer = sum(max(0.0, a - b) for _, a, b in parts)
        words = [
            f"{(a - b) / longer:.0%} is {part.name} ({number(1e3 * a)} ms against "
            f"{number(1e3 * b)} ms)"
            for part, a, b in parts[:MAX_NAMED_PARTS]
            if longer > 0 and a - b >= MIN_EXPLAINED * longer
        ]
        is_slower = (
            f"Of {row_name(comparison, base)}'s seconds {row_name(comparison, result)} takes "
            f"{number(ratio.median)}×"
        )
        found.append(
            f"{is_slower}: of what its parts take longer, {joined(words)}."
            if words
            else f"{is_slower}, and no part of its step stands out."
        )
    return found


def sums(comparison: Comparison) -> list[str]:
    """Return the sentence on what the parts add up to, where that is about the step."""
    words = [
        f"{share:.0%} of {row_name(comparison, result)}'s"
        for result in measured(comparison)
        if (share := total_share(comparison, result)) and ADD_UP[0] <= share <= ADD_UP[1]
    ]
    return [f"The parts add up to {joined(words)} step."] if words else []


def warnings(comparison: Comparison) -> list[str]:
    """Return where the parts do not add up to the step, and which of them have no figures."""
    found = []
    for result in measured(comparison):
        name, share = row_name(comparison, result), total_share(comparison, result)
        found += [f"{name}: {problem}" for problem in _problems(comparison, result)]
        if share is None or ADD_UP[0] <= share <= ADD_UP[1]:
            continue
        why = (
            "in the step more of them are fused, or run at the same time"
            if share > 1
            else "the rest, such as making batches or collecting garbage, is outside of the layers"
        )
        found.append(f"{name}: the parts add up to {share:.0%} of the step: {why}")
    return found


def _problems(comparison: Comparison, result: CellResult) -> list[str]:
    """Return why parts have no figures, each reason once with the parts that have it."""
    names: dict[str, list[str]] = {}
    for part in comparison.parts:
        if problem := comparison.part_figures(part)[result.name].problem:
            names.setdefault(problem, []).append(part.name)
    return [f"{joined(parts)}: {problem}" for problem, parts in names.items()]
