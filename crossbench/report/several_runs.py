"""Draw several comparisons in one table.

It has what changed since the first, the rows of all, or the means of their ratios.
"""

from __future__ import annotations

from statistics import median

from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.rows import Value, as_dict, estimate_fields, row
from ..results.several_runs import Change, MeanRatio, by_work, changes, mean_ratios
from ..results.statistics import MIN_ROUNDS, Estimate, unpaired_ratio
from .columns import MERGED, header, texts
from .formatting import count, equal_columns, grid, joined, lines, number, with_interval
from .headings import environment_words


def change_table(comparisons: list[Comparison], markdown: bool = False) -> str:
    """Return a table of every later comparison relative to the first, row by row."""
    rows = [
        {
            "cell": change.name,
            "run": str(run_number),
            "× run 1": with_interval(change.seconds),
            "relative to its run": number(change.relative_to_run),
            "": change.verdict,
        }
        for run_number, _, change in _all_changes(comparisons)
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
        for run_number, other, change in _all_changes(comparisons)
    ]


def _all_changes(comparisons: list[Comparison]) -> list[tuple[int, Comparison, Change]]:
    """Return the changes of each later comparison, after the number of its run and itself."""
    base, *others = comparisons
    return [
        (run_number, other, change)
        for run_number, other in enumerate(others, 2)
        for change in changes(base, other)
    ]


def merged_tables(comparisons: list[Comparison], markdown: bool = False) -> str:
    """Return a table for each work that was done, and the means of the ratios over several."""
    groups = by_work(comparisons)
    if len(groups) == 1:
        return merged_table(comparisons, markdown)
    parts = [part for group in groups for part in (_work(group), merged_table(group, markdown))]
    return "\n\n".join(filter(None, [*parts, mean_table(comparisons, markdown)]))


def merged_table(comparisons: list[Comparison], markdown: bool = False) -> str:
    """Return the rows of all comparisons, which are of the same work, with the number of their run.

    × fastest is relative to the fastest row of all with the same task and batch size, not paired.
    """
    frozen = [c.frozen() for c in comparisons]
    rows = [
        texts(row(comparison, result), result, MERGED)
        | {
            "machine": str(run_number),
            "title": result.cell.label,
            "ratio": with_interval(_ratio_to_fastest(frozen, comparison, result)),
        }
        for run_number, comparison in enumerate(frozen, 1)
        for result in comparison.results
        if result.epochs
    ]
    hidden = equal_columns(rows, "compute", "task", "batch_size")
    headers = {name: header(name) for name in MERGED}
    table = grid(rows, hidden, text_columns=3, markdown=markdown, headers=headers)
    return "\n\n".join([_legend(comparisons), table])


def merged_rows(comparisons: list[Comparison]) -> list[dict[str, Value]]:
    """Return the rows of all comparisons with the number of their run.

    Their ratio is relative to the fastest row of all that did the same work, not paired.
    """
    frozen = [comparison.frozen() for comparison in comparisons]
    alike = {id(one): group for group in by_work(frozen) for one in group}
    found = []
    for run_number, comparison in enumerate(frozen, 1):
        for result in comparison.results:
            ratio = _ratio_to_fastest(alike[id(comparison)], comparison, result)
            found.append(
                {"run": run_number}
                | as_dict(row(comparison, result))
                | {"relative_to": "the fastest of all runs" if ratio else None}
                | estimate_fields("ratio", ratio)
            )
    return found


def mean_words(means: list[MeanRatio]) -> str:
    """Return the geometric means in a sentence for each place."""
    sentences = []
    places = dict.fromkeys(m.place for m in means)
    several_computes = len({compute for _, _, compute, _ in places}) > 1
    for place in places:
        of_place = [m for m in means if m.place == place]
        device, threads, compute, task = place
        words = [device, count(threads, "thread"), *([compute] if several_computes else []), task]
        where = f" ({', '.join(words)})" if len(places) > 1 else ""
        each = [f"{m.name} {with_interval(m.ratio)} (over {len(m.over)})" for m in of_place]
        sentences.append(
            f"Relative to {of_place[0].base}, the geometric means are{where}: {joined(each)}."
        )
    return " ".join(sentences)


def mean_table(comparisons: list[Comparison], markdown: bool = False) -> str | None:
    """Return the geometric means of the ratios over models and batch sizes; None without one."""
    means = mean_ratios(comparisons)
    if not means:
        return None
    rows = [
        {
            "framework": m.name,
            "device": m.device,
            "task": m.task,
            "threads": str(m.threads),
            "compute": m.compute,
            "geometric mean": with_interval(m.ratio),
            "relative to": m.base,
            "over": str(len(m.over)),
        }
        for m in means
    ]
    over = dict.fromkeys("; ".join(m.over) for m in means)
    notes = [f"over {what.count(';') + 1}: {what}." for what in over]
    notes.append(
        "geometric mean: of the ratios of steady seconds, paired by round; each model counts once. "
        "(The 95 % bootstrap interval) is over models, runs and rounds, of a single model over "
        f"rounds; fewer than {MIN_ROUNDS} models, or rounds of a single one, have [the range]."
    )
    table = grid(rows, equal_columns(rows, "compute"), text_columns=3, markdown=markdown)
    return "\n\n".join([table, lines(notes)])


def _ratio_to_fastest(
    comparisons: list[Comparison], comparison: Comparison, result: CellResult
) -> Estimate | None:
    """Return the ratio to the fastest ranked row with the same precision, task and batch size."""
    if not comparison.is_ranked(result):
        return None
    same_work = (
        c.seconds(r)
        for c in comparisons
        for r in c.results
        if r.cell.group[2:] == result.cell.group[2:] and c.is_ranked(r)
    )
    return unpaired_ratio(comparison.seconds(result), min(same_work, key=median))


def _work(comparisons: list[Comparison]) -> str:
    """Return what all of the comparisons trained, for a heading."""
    one = comparisons[0]
    return f"{one.model['name']}, {one.data.name}, seed {one.settings.seed}:"


def _legend(comparisons: list[Comparison]) -> str:
    runs = []
    for run_number, comparison in enumerate(comparisons, 1):
        machine = comparison.machine
        versions = "; ".join(
            f"{r.name}: {', '.join(f'{k} {v}' for k, v in r.details.items())}"
            for r in comparison.results
            if r.details
        )
        runs.append(
            f"{run_number}: {comparison.created}, {machine.name}, {count(machine.cpus, 'CPU')}, "
            f"{', '.join(machine.gpus) or 'no GPU'}, {machine.system}"
            f"{environment_words(comparison)}; {versions}"
        )
    return lines(runs)
