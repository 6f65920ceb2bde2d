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
            sentences.append(f"{name} is {_times(speedup)} as fast on {where} as on the CPU.")
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
        return [_verdict_by_size(comparison, compared, where), *_means(comparison, place)]
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
        parts = [f"{_times(ratio)} as fast as {other}", *(f"{_times(r)} as {o}" for o, r in more)]
        words += f"; {name} is " if equal else ": "
        words += ", ".join(parts)
    if len(slower) > MAX_NAMED:
        words += f"; {len(slower) - MAX_NAMED} more are slower"
    if any(ratio.low is None for _, ratio in ratios):
        return f"{words} ([range]: {MIN_ROUNDS} rounds give an interval)."
    return f"{words}."


def _verdict_by_size(
    comparison: Comparison, ranked: dict[int, list[CellResult]], where: str
) -> str:
    """Return the sentence on who is fastest from which batch size on.

    ranked: by batch size, ascending, two or more cells, the fastest first.
    """
    start = f"{where[0].upper()}{where[1:]}"
    names = {cells[0].cell.label for cells in ranked.values()}
    if len(names) == 1:
        return f"{start}, {names.pop()} is fastest with every batch size."
    parts = list[str]()
    before = None
    for size, (fastest, second, *others) in ranked.items():
        if before == fastest.cell.implementation:
            continue
        # who was fastest with the smaller batches, if it is ranked here, else the second
        cells = (second, *others)
        other = next((r for r in cells if r.cell.implementation == before), second)
        name = fastest.cell.label
        words = (
            f"{name} from {size:,} on" if parts else f"{name} is fastest with batches of {size:,}"
        )
        if ratio := comparison.paired(other, fastest):
            unsure = "" if ratio.is_over(1) else ", not a significant difference"
            words += f" ({_times(ratio)} as fast as {other.cell.label}{unsure})"
        parts.append(words)
        before = fastest.cell.implementation
    return f"{start}, {joined(parts)}."


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
