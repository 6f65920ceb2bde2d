"""Say in sentences who is fastest, and by how much."""

from __future__ import annotations

from collections import Counter

from ..results.cells import CellResult, Place
from ..results.comparison import Comparison
from ..results.several_runs import mean_ratios
from ..results.statistics import MIN_ROUNDS, Estimate
from .formatting import count, device_words, joined, with_interval
from .row_names import name_with

MAX_NAMED = 5
"""Rows that a sentence names: the slower ones, those that were proved, those with one problem."""


def verdicts(comparison: Comparison) -> list[str]:
    """Say who is fastest in each task on each device, with each number of threads and precision.

    With several batch sizes the sentence is on all of them.
    """
    places = dict.fromkeys(group.place for group in comparison.groups)
    sentences = [line for place in places for line in _verdicts_of(comparison, place)]
    for result in comparison.results:
        if speedup := comparison.gpu_speedup(result):
            name = name_with(comparison, result, "compute", "task", "batch_size")
            where = device_words(result.cell.device)
            sentences.append(f"On the CPU {name} takes {_times(speedup)} its seconds on {where}.")
    return sentences


def _verdicts_of(comparison: Comparison, place: Place) -> list[str]:
    """Return the sentences on a place; none without two rows to compare."""
    groups = sorted(group for group in comparison.groups if group.place == place)
    ranked = {group.batch_size: comparison.ranked(group) for group in groups}
    compared = {size: cells for size, cells in ranked.items() if len(cells) > 1}
    if not compared:
        return []
    where = _where(comparison, place)
    if len(groups) > 1:
        left_out = [size for size in ranked if size not in compared]
        verdict = _verdict_by_size(comparison, compared, left_out, where)
        return [verdict, *_means(comparison, place)]
    (cells,) = compared.values()
    return [_verdict(comparison, cells, where)]


def _where(comparison: Comparison, place: Place) -> str:
    """Return the device, and the threads and the task if they differ: "to train on the CPU"."""
    device, threads, compute, task = place
    where = f"on {device_words(device)}"
    if len({group.threads for group in comparison.groups}) > 1:
        where += f" with {count(threads, 'thread')}"
    if len({group.compute for group in comparison.groups}) > 1:
        where += f" in {compute}"
    if len({group.task for group in comparison.groups}) > 1:
        where = f"to {task} {where}"
    return where


def _verdict(comparison: Comparison, ranked: list[CellResult], where: str) -> str:
    """Return the sentence on one group of cells, the fastest first."""
    fastest, *others = ranked
    name = fastest.cell.label
    ratios = [(r.cell.label, ratio) for r in others if (ratio := comparison.paired(r, fastest))]
    slower = [(other, ratio) for other, ratio in ratios if ratio.is_over(1)]
    equal = [(other, ratio) for other, ratio in ratios if not ratio.is_over(1)]
    words = f"{name} is fastest {where}"
    if equal:
        pairs = joined(f"{other} {_times(ratio)}" for other, ratio in equal)
        words = (
            f"{joined([name, *(other for other, _ in equal)])} are fastest {where}, without a "
            f"significant difference ({pairs})"
        )
    if slower:
        (other, ratio), *more = slower[:MAX_NAMED]
        whose = f"; of {name}'s seconds" if equal else ": of its seconds"
        parts = [f"{whose} {other} takes {_times(ratio)}", *(f"{o} {_times(r)}" for o, r in more)]
        words += ", ".join(parts)
    if len(slower) > MAX_NAMED:
        words += f"; {len(slower) - MAX_NAMED} more are slower"
    if any(ratio.low is None for _, ratio in ratios):
        return f"{words} ([range]: {MIN_ROUNDS} rounds give an interval)."
    return f"{words}."


def _verdict_by_size(
    comparison: Comparison, ranked: dict[int, list[CellResult]], left_out: list[int], where: str
) -> str:
    """Return the sentence on who is fastest from which batch size on.

    ranked: by batch size, ascending, two or more cells, the fastest first. left_out: batch sizes
    with fewer of them.
    """
    start = f"{where[0].upper()}{where[1:]}"
    names = {size: _fastest(comparison, cells) for size, cells in ranked.items()}
    if len(set(names.values())) == 1 and not left_out:
        (only,) = set(names.values())
        unsure = ", without a significant difference" if len(only) > 1 else ""
        return f"{start}, {_are_fastest(only)} with every batch size{unsure}."
    parts = list[str]()
    before = None
    for size, cells in ranked.items():
        if names[size] != before:
            before = names[size]
            by = _by_how_much(comparison, cells, before)
            if parts:
                parts.append(f"{joined(before)} from {size:,} on{by}")
            else:
                parts.append(f"{_are_fastest(before)} with batches of {size:,}{by}")
    few = joined(f"{size:,}" for size in left_out)
    without = f"; with batches of {few} fewer than two rows are ranked" if left_out else ""
    return f"{start}, {joined(parts)}{without}."


def _fastest(comparison: Comparison, ranked: list[CellResult]) -> tuple[str, ...]:
    """Return the label of the first cell, and of those that are not significantly slower, in the
    order of the labels.
    """
    fastest, *others = ranked
    equal = [r for r in others if (ratio := comparison.paired(r, fastest)) and not ratio.is_over(1)]
    return tuple(sorted(r.cell.label for r in (fastest, *equal)))


def _are_fastest(names: tuple[str, ...]) -> str:
    return f"{joined(names)} {'are' if len(names) > 1 else 'is'} fastest"


def _by_how_much(comparison: Comparison, ranked: list[CellResult], fastest: tuple[str, ...]) -> str:
    """Return the ratio of the second cell to the first one, or those of all that are not slower."""
    first, *others = ranked
    ratios = [(r.cell.label, ratio) for r in others if (ratio := comparison.paired(r, first))]
    if len(fastest) > 1:
        equal = joined(f"{name} {_times(ratio)}" for name, ratio in ratios if name in fastest)
        return f", without a significant difference ({equal})"
    return "".join(f" ({name} takes {_times(ratio)})" for name, ratio in ratios[:1])


def _means(comparison: Comparison, place: Place) -> list[str]:
    """Return the sentence on the geometric means of the ratios over the batch sizes of a place."""
    fastest = Counter(
        ranked[0].cell.implementation
        for group in comparison.groups
        if group.place == place and (ranked := comparison.ranked(group))
    )
    ((base, _),) = fastest.most_common(1)
    means = [m for m in mean_ratios([comparison], base) if m.place == place]
    if not means:
        return []
    each = [f"{m.name} takes {_times(m.ratio)} (over {len(m.over)})" for m in means]
    return [f"The geometric means over batch sizes: of {means[0].base}'s seconds {joined(each)}."]


def _times(ratio: Estimate) -> str:
    """Return the ratio with its interval: "1.49× (1.43–1.55)"."""
    median, _, interval = with_interval(ratio).partition(" ")
    return f"{median}× {interval}".strip()
