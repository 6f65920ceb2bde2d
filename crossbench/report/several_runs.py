"""Draw several comparisons in one table: what changed since the first, or the rows of all."""

from __future__ import annotations

from statistics import median

from ..results.comparison import Comparison
from ..results.records import CellResult
from ..results.rows import Value, as_dict, estimate_fields, row
from ..results.several_runs import changes
from ..results.statistics import MIN_ROUNDS, Estimate, unpaired_ratio
from .formatting import count, grid, integer, lines, number, percent, with_interval


def change_table(comparisons: list[Comparison], markdown: bool = False) -> str:
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
    return "\n\n".join([_legend(comparisons), grid(rows, markdown=markdown), lines(notes)])


def change_rows(comparisons: list[Comparison]) -> list[dict[str, Value]]:
    """Return the same as plain figures."""
    base, *others = (comparison.frozen() for comparison in comparisons)
    return [
        {
            "cell": change.name,
            "run": run_number,
            "created": other.created,
            "machine": other.machine.name,
            **estimate_fields("ratio_to_run_1", change.seconds),
            "ratio_relative_to_run": change.relative_to_run,
            "verdict": change.verdict,
        }
        for run_number, other in enumerate(others, 2)
        for change in changes(base, other)
    ]


def merged_table(comparisons: list[Comparison], markdown: bool = False) -> str:
    """Return the rows of all comparisons with the number of their run.

    × fastest is relative to the fastest row of all, not paired.
    """
    frozen = [c.frozen() for c in comparisons]
    cells = [
        (run_number, comparison, result)
        for run_number, comparison in _numbered(frozen)
        for result in comparison.results
        if result.epochs
    ]
    fastest = _fastest(frozen)
    rows = []
    for run_number, comparison, result in cells:
        memory, cpu = result.peak_memory, comparison.steady(result, "cpu_seconds")
        rows.append(
            {
                "machine": run_number,
                "framework": result.cell.label,
                "device": result.cell.device,
                "threads": str(result.cell.threads),
                "first epoch s": with_interval(comparison.first_epoch(result)),
                "steady epoch s": with_interval(comparison.steady(result)),
                "CPU s": number(cpu.median if cpu else None),
                "cores": number(comparison.cores(result)),
                "examples/s": number(comparison.examples_per_second(result)),
                "× fastest": with_interval(_ratio_to(comparison, result, fastest)),
                "accuracy": percent(result.test_accuracy),
                "peak MiB": integer(memory and memory / 2**20),
            }
        )
    return "\n\n".join([_legend(comparisons), grid(rows, text_columns=3, markdown=markdown)])


def merged_rows(comparisons: list[Comparison]) -> list[dict[str, Value]]:
    """Return the rows of all comparisons with the number of their run.

    Their ratio is relative to the fastest row of all, not paired.
    """
    frozen = [comparison.frozen() for comparison in comparisons]
    fastest = _fastest(frozen)
    found = []
    for run_number, comparison in enumerate(frozen, 1):
        for result in comparison.results:
            ratio = _ratio_to(comparison, result, fastest)
            found.append(
                {"run": run_number}
                | as_dict(row(comparison, result))
                | {"relative_to": "the fastest of all runs" if ratio else None}
                | estimate_fields("ratio", ratio)
            )
    return found


def _fastest(comparisons: list[Comparison]) -> list[float]:
    """Return the seconds of the fastest ranked row of all, one value per round."""
    ranked = (c.seconds(r) for c in comparisons for r in c.results if c.is_ranked(r))
    return min(ranked, key=median, default=[])


def _ratio_to(comparison: Comparison, result: CellResult, fastest: list[float]) -> Estimate | None:
    if not comparison.is_ranked(result):
        return None
    return unpaired_ratio(comparison.seconds(result), fastest)


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
            f"{run_number}: {comparison.created}, {machine.name}, {count(machine.cpus, 'CPU')}, "
            f"{', '.join(machine.gpus) or 'no GPU'}, {machine.system}; {versions}"
        )
    return lines(runs)
