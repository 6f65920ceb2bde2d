"""Draw several comparisons in one table: what changed since the first, or the rows of all."""

from __future__ import annotations

from statistics import median

from ..results.comparison import Comparison
from ..results.several_runs import changes
from ..results.statistics import MIN_ROUNDS, unpaired_ratio
from .formatting import EMPTY_CELL, count, grid, integer, lines, number, percent, with_interval


def change_table(comparisons: list[Comparison]) -> str:
    """Return a table of every later comparison relative to the first, row by row."""
    base, *others = (comparison.frozen() for comparison in comparisons)
    rows = [
        {
            "cell": change.name,
            "run": run_number,
            "× run 1": with_interval(change.seconds),
            "relative to its run": number(change.relative_to_run),
            "": change.verdict,
        }
        for run_number, other in _numbered(others, 2)
        for change in changes(base, other)
    ]
    notes = [
        "× run 1: ratio of the median steady epoch to that of run 1, not paired, with (its 95 % "
        f"bootstrap interval) or, for fewer than {MIN_ROUNDS} rounds, [its range].",
        "relative to its run: the same for the ratio to the row that it is compared with in its "
        "own run, paired by round: a machine that is slower as a whole does not change it.",
    ]
    return "\n\n".join([_legend(comparisons), grid(rows), lines(notes)])


def merged_table(comparisons: list[Comparison]) -> str:
    """Return the rows of all comparisons with the number of their run.

    × fastest is relative to the fastest row of all, not paired.
    """
    cells = [
        (run_number, comparison, result)
        for run_number, comparison in _numbered([c.frozen() for c in comparisons])
        for result in comparison.results
        if result.epochs
    ]
    ranked = [(c, r) for _, c, r in cells if c.is_ranked(r)]
    fastest = min((c.seconds(r) for c, r in ranked), key=median, default=[])
    rows = []
    for run_number, comparison, result in cells:
        memory, cpu = result.peak_memory, comparison.steady(result, "cpu_seconds")
        rows.append(
            {
                "machine": run_number,
                "framework": result.cell.title,
                "device": result.cell.device,
                "threads": str(result.cell.threads),
                "first epoch s": with_interval(comparison.first_epoch(result)),
                "steady epoch s": with_interval(comparison.steady(result)),
                "CPU s": number(cpu.median if cpu else None),
                "cores": number(comparison.cores(result)),
                "examples/s": number(comparison.examples_per_second(result)),
                "× fastest": with_interval(unpaired_ratio(comparison.seconds(result), fastest))
                if comparison.is_ranked(result)
                else EMPTY_CELL,
                "accuracy": percent(result.test_accuracy),
                "peak MiB": integer(memory and memory / 2**20),
            }
        )
    return "\n\n".join([_legend(comparisons), grid(rows, text_columns=3)])


def _numbered(comparisons: list[Comparison], start: int = 1) -> list[tuple[str, Comparison]]:
    return [
        (str(run_number), comparison) for run_number, comparison in enumerate(comparisons, start)
    ]


def _legend(comparisons: list[Comparison]) -> str:
    runs = []
    for run_number, comparison in _numbered(comparisons):
        machine = comparison.machine
        versions = "; ".join(
            f"{r.name}: {', '.join(f'{k} {v}' for k, v in r.details.items())}"
            for r in comparison.results
            if r.details
        )
        runs.append(
            f"{run_number}: {comparison.created}, {machine.cpu}, {count(machine.cpus, 'CPU')}, "
            f"{', '.join(machine.gpus) or 'no GPU'}, {machine.system}; {versions}"
        )
    return lines(runs)
