"""Compare two editions of results: what became faster, as seconds relative to PyTorch's in each.

    python benchmarks/editions.py results/2026-11-epyc results/NAME

Two editions are weeks and versions apart, so no seconds of one are beside the other's: a row's
ratio to PyTorch's idiomatic row of its own run is, in each edition. A change is the second ratio
over the first one, with what the intervals of both allow. Where an edition has several runs of the
same work, the last one counts.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from tabulate import tabulate

import crossbench
from crossbench.results.statistics import Estimate

BASE = "torch"


def ratios(folder: Path) -> Iterator[tuple[tuple[str, ...], Estimate]]:
    """Yield the ratio of each ranked row, by its model, batch size, task, precision and name."""
    comparisons = [crossbench.load(file) for file in folder.rglob("*.json.gz")]
    for comparison in sorted(comparisons, key=lambda one: one.created):
        if comparison.parts:
            continue
        by_group = {r.cell.group: r for r in comparison.results if r.cell.implementation == BASE}
        for row in comparison.results:
            base = by_group.get(row.cell.group)
            if base is None or row is base or not comparison.is_ranked(row):
                continue
            ratio = comparison.paired(row, base)
            if ratio and ratio.low and ratio.high:
                cell = row.cell
                work = (comparison.model["name"], f"{cell.batch_size:,}", cell.task, cell.compute)
                yield (*work, cell.implementation), ratio


def shown(*figures: float) -> str:
    return "{:.3g} ({:.3g}–{:.3g})".format(*figures)


def main(first: str, second: str) -> None:
    before, after = (dict(ratios(Path(folder))) for folder in (first, second))
    lines = []
    for key in sorted(before.keys() & after.keys()):
        a, b = before[key], after[key]
        change, low, high = b.median / a.median, b.low / a.high, b.high / a.low
        mark = " *" * (low > 1 or high < 1)
        both = [shown(ratio.median, ratio.low, ratio.high) for ratio in (a, b)]
        lines.append([*key, *both, f"{shown(change, low, high)}{mark}"])
    headers = ["model", "batch", "task", "precision", "row", first, second, "change"]
    print(tabulate(lines, headers, disable_numparse=True))
    print("* the intervals of both editions do not allow 1")


if __name__ == "__main__":
    main(*sys.argv[1:])
