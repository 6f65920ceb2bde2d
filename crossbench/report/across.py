"""Several comparisons in one table: what changed against the first, or the rows of all machines."""

from __future__ import annotations

from statistics import median

from ..results.across import changes
from ..results.comparison import Comparison
from ..results.statistics import LEAST, unpaired_ratio
from .figures import NOTHING, count, grid, lines, number, percent, spread, whole


def change_table(comparisons: list[Comparison]) -> str:
    """Every later comparison against the first, cell by cell."""
    base, *others = (comparison.frozen() for comparison in comparisons)
    rows = [
        {
            "cell": change.name,
            "run": number_of,
            "× run 1": spread(change.seconds),
            "against its fastest": number(change.against_others),
            "": change.verdict,
        }
        for number_of, other in _numbered(others, 2)
        for change in changes(base, other)
    ]
    notes = [
        "× run 1: seconds of a steady epoch, times those of run 1: the medians' ratio, unpaired, "
        f"and (its 95 % interval, bootstrap) or, of fewer than {LEAST} rounds, [their range].",
        "against its fastest: the same of the ratio to the fastest cell of its own run, paired by "
        "round there: a machine that was slower as a whole does not show in it.",
    ]
    return "\n\n".join([_legend(comparisons), grid(rows), lines(notes)])


def merged_table(comparisons: list[Comparison]) -> str:
    """The rows of all, with the machine's number; × fastest is over all of them, unpaired."""
    cells = [
        (number_of, comparison, result)
        for number_of, comparison in _numbered([c.frozen() for c in comparisons])
        for result in comparison.results
        if result.epochs
    ]
    counted = [(c, r) for _, c, r in cells if c.counts(r)]
    fastest = min((c.seconds(r) for c, r in counted), key=median, default=[])
    rows = []
    for number_of, comparison, result in cells:
        memory, cpu = result.peak_memory, comparison.steady(result, "cpu_seconds")
        rows.append(
            {
                "machine": number_of,
                "framework": result.cell.title,
                "device": result.cell.device,
                "threads": str(result.cell.threads),
                "first epoch s": spread(comparison.first_epoch(result)),
                "steady epoch s": spread(comparison.steady(result)),
                "CPU s": number(cpu.median if cpu else None),
                "cores": number(comparison.cores(result)),
                "examples/s": number(comparison.examples_per_second(result)),
                "× fastest": spread(unpaired_ratio(comparison.seconds(result), fastest))
                if comparison.counts(result)
                else NOTHING,
                "accuracy": percent(result.test_accuracy),
                "peak MiB": whole(memory and memory / 2**20),
            }
        )
    return "\n\n".join([_legend(comparisons), grid(rows, words=3)])


def _numbered(comparisons: list[Comparison], start: int = 1) -> list[tuple[str, Comparison]]:
    return [(str(number_of), comparison) for number_of, comparison in enumerate(comparisons, start)]


def _legend(comparisons: list[Comparison]) -> str:
    runs = []
    for number_of, comparison in _numbered(comparisons):
        machine = comparison.machine
        versions = "; ".join(
            f"{r.name}: {', '.join(f'{k} {v}' for k, v in r.details.items())}"
            for r in comparison.results
            if r.details
        )
        runs.append(
            f"{number_of}: {comparison.created}, {machine.cpu}, {count(machine.cpus, 'CPU')}, "
            f"{', '.join(machine.gpus) or 'no GPU'}, {machine.system}; {versions}"
        )
    return lines(runs)
