"""Compare several comparisons: of other days, versions, machines or models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..inputs.errors import ResultsError
from ..inputs.names import Compute
from .cells import CellResult, Group, Place
from .comparison import Comparison, without_data
from .epochs import Task
from .statistics import Estimate, mean_over_models, unpaired_ratio


@dataclass(frozen=True)
class Change:
    """Hold the change of a cell between two comparisons, the first of which is the base.

    seconds: ratio of a steady epoch's seconds to those in the base; the two runs have no rounds in
        common.
    relative_to_run: the same for the cell's ratio to the cell that it is compared with in the base,
        in either run (the median of the ratios paired by round), which does not change when the
        whole machine is slower.
    problem: why neither is known.
    """

    name: str
    seconds: Estimate | None = None
    relative_to_run: float | None = None
    problem: str | None = None

    @property
    def verdict(self) -> str:
        """Return the change in words."""
        if self.seconds is None:
            return f"not compared: {self.problem}"
        if self.seconds.low is None:
            return "too few rounds to tell"
        if not self.seconds.excludes(1):
            return "not significantly different"
        return "slower" if self.seconds.median > 1 else "faster"

    def fails(self, above: float) -> bool:
        """Return whether it is slower than allowed, or not known. above: 0.1 for 10 %."""
        if self.seconds is None or self.seconds.low is None:
            return True
        return self.verdict == "slower" and self.seconds.median > 1 + above


def changes(base: Comparison, other: Comparison) -> list[Change]:
    """Return the change of each cell that was to run in the base."""
    base, other = base.frozen(), other.frozen()
    cells = {_cell_key(result): result for result in other.results}
    return [
        _change(base, result, other, cells.get(_cell_key(result)))
        for result in base.results
        if result.cell.named or result.status != "unavailable"
    ]


@dataclass(frozen=True)
class MeanRatio:
    """Hold the geometric mean of a framework's ratios to another one over models and batch sizes.

    name, base: the frameworks with their variants, as the tables show them. ratio: of steady
        seconds, paired by round; each model counts once, and the interval of several models is
        over them: see mean_over_models. over: such as "lenet, batches of 32".
    """

    name: str
    base: str
    device: str
    threads: int
    compute: Compute
    task: Task
    ratio: Estimate
    over: tuple[str, ...]

    @property
    def place(self) -> Place:
        return Place(self.device, self.threads, self.compute, self.task)


def mean_ratios(comparisons: Sequence[Comparison], base: str | None = None) -> list[MeanRatio]:
    """Return the mean ratio of each framework to the base in each place.

    base: a framework as --baseline takes it; None for the one that most comparisons have ranked.
    Left out where there is a single ratio.
    """
    frozen = [comparison.frozen() for comparison in comparisons]
    over: dict[tuple[str, str, Place], list[str]] = {}
    found: dict[tuple[str, str, Place], dict[str, list[dict[int, float]]]] = {}
    for label, comparison, result, other in pairs(frozen, base or common_framework(frozen)):
        cell = result.cell
        key = (cell.label, other.cell.label, cell.group.place)
        if ratios := comparison.round_ratios(result, other):
            over.setdefault(key, []).append(f"{label}, batches of {cell.batch_size:,}")
            by_model = found.setdefault(key, {})
            by_model.setdefault(comparison.model["name"], []).append(ratios)
    return [
        MeanRatio(name, base, *place, ratio, tuple(over[name, base, place]))
        for (name, base, place), by_model in found.items()
        if len(over[name, base, place]) > 1 and (ratio := mean_over_models(list(by_model.values())))
    ]


def common_framework(comparisons: Sequence[Comparison]) -> str | None:
    """Return the framework that most comparisons have ranked; of several the first by name."""
    ranked = Counter(
        framework
        for comparison in comparisons
        for framework in {
            r.cell.implementation for r in comparison.results if comparison.is_ranked(r)
        }
    )
    return min(ranked, key=lambda name: (-ranked[name], name), default=None)


def pairs(
    comparisons: Sequence[Comparison], framework: str | None
) -> Iterator[tuple[str, Comparison, CellResult, CellResult]]:
    """Yield the cells whose group has a ranked cell of the framework, each with that cell, after
    the label of their run and their comparison.
    """
    for label, comparison in zip(run_labels(comparisons), comparisons, strict=True):
        for result in comparison.results:
            for other in comparison.ranked(result.cell.group):
                if other.cell.implementation == framework and other is not result:
                    yield label, comparison, result, other


def run_labels(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a label for each comparison: its model, machine and date, as far as they differ; the
    model of a single one.
    """
    if len(comparisons) == 1:
        return [comparisons[0].model["name"]]
    kinds = (
        [c.model["name"] for c in comparisons],
        [c.machine.name for c in comparisons],
        [c.created[:16].replace("T", " ") for c in comparisons],
    )
    for differing in ([k for k in kinds[:2] if len(set(k)) > 1], kinds):
        labels = [", ".join(parts) for parts in zip(*differing, strict=True)]
        if len(set(labels)) == len(comparisons):
            return labels
    return [f"run {number}" for number in range(1, len(comparisons) + 1)]


def by_work(comparisons: Sequence[Comparison]) -> list[list[Comparison]]:
    """Return the comparisons of the same work together, in the order of their first ones."""
    groups: list[list[Comparison]] = []
    for comparison in comparisons:
        same = (group for group in groups if not _difference(group[0], comparison))
        if group := next(same, None):
            group.append(comparison)
        else:
            groups.append([comparison])
    return groups


def check_same_work(comparisons: list[Comparison]) -> None:
    """Raise ResultsError where the comparisons are not of the same work."""
    first = comparisons[0]
    for other in comparisons[1:]:
        if difference := _difference(first, other):
            raise ResultsError(
                f"the runs of {first.created} and {other.created} cannot be compared: {difference}"
            )


def _difference(first: Comparison, other: Comparison) -> str | None:
    """Return how the work of two comparisons differs, in words; None if it is the same."""
    for what, a, b in (
        ("model", without_data(first.model), without_data(other.model)),
        ("data", first.data.sha256, other.data.sha256),
        ("limit on the batches", first.data.most_batches, other.data.most_batches),
        ("limit on the examples", first.data.most_examples, other.data.most_examples),
        ("number of epochs in a round", first.settings.epochs, other.settings.epochs),
    ):
        if a != b:
            return f"the {what} differs" + (f" ({a} and {b})" if isinstance(a, int) else "")
    return None


def _cell_key(result: CellResult) -> tuple[str, Group]:
    return result.cell.implementation, result.cell.group


def _change(
    base: Comparison, before: CellResult, other: Comparison, after: CellResult | None
) -> Change:
    if after is None:
        return Change(before.name, problem="only the first file has it")
    for comparison, result in ((base, before), (other, after)):
        if not comparison.is_ranked(result):
            doubt = comparison.doubt(result) if result.parity else None
            reason = result.reason or doubt or "no finished round"
            return Change(before.name, problem=f"{reason}, in the run of {comparison.created}")
    ratio = unpaired_ratio(other.seconds(after), base.seconds(before))
    beside = base.base(before)
    same = [r for r in other.results if beside and _cell_key(r) == _cell_key(beside)]
    if not same or before is beside:
        return Change(before.name, ratio)
    a, b = base.ratio(before), other.paired(after, same[0])
    relative = b.median / a.median if a and b else None
    return Change(before.name, ratio, relative_to_run=relative)
