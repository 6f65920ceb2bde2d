"""Tell who is fastest in each run and with each kind of model, and how versions compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..inputs.names import FLOAT32, IDIOMATIC
from ..report.formatting import count, device_words
from ..results.cells import Place
from ..results.epochs import TRAIN
from ..results.statistics import Estimate, mean_over_models, mean_ratio, round_ratios
from .runs import KINDS, Measured, Run

MIN_COVERAGE = 0.5
"""Share of the models of a mean that a row must have to stand in it: the mean is over the models
that all rows have."""


class Unit(NamedTuple):
    """Identify what rows are compared by: the same work, with batches of the same size."""

    model: str
    work: str
    batches: int
    batch_size: int

    @property
    def label(self) -> str:
        return f"{self.model}, {count(self.batches, 'batch', 'batches')} of {self.batch_size:,}"


Units = dict[Unit, dict[str, Measured]]
"""The rows of each unit, by their label: all of one run."""


def unit_of(run: Run, measured: Measured) -> Unit:
    return Unit(run.model, run.work, measured.row.batches, measured.row.batch_size)


@dataclass(frozen=True)
class Ranking:
    """Hold who is fastest in a group of a run.

    epoch: its batches, as `Measured` tells them. ratios: to the seconds of the fastest, by label,
    the fastest first.
    """

    run: Run
    place: Place
    epoch: str
    ratios: dict[str, Estimate]


@dataclass(frozen=True)
class Answer:
    """Hold who is fastest in a place, with models of a kind.

    ratios: to the seconds of the fastest, by label, the fastest first: the geometric mean over the
    models of the units. lacking: labels of rows that lack too many of the units.
    """

    kind: str
    place: Place
    units: list[Unit]
    ratios: dict[str, Estimate]
    lacking: list[str]

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(unit.model for unit in self.units))


def rankings(runs: Iterable[Run]) -> list[Ranking]:
    """Return who is fastest in each group that has two ranked rows, in the order of the runs."""
    found = []
    for run in runs:
        for group in dict.fromkeys(m.group for m in run.measured if m.ratio):
            rows = [m for m in run.measured if m.group == group]
            ratios = _fastest_first({m.label: m.ratio for m in rows if m.ratio})
            if len(ratios) > 1:
                found.append(Ranking(run, group.place, rows[0].epoch, ratios))
    return found


def fastest(ratios: Mapping[str, Estimate]) -> list[str]:
    """Return the label of the fastest, and of those that are not significantly slower.

    ratios: the fastest first.
    """
    first, *others = ratios
    return [first, *(other for other in others if not ratios[other].is_over(1))]


def _fastest_first(ratios: Mapping[str, Estimate]) -> dict[str, Estimate]:
    return dict(sorted(ratios.items(), key=lambda entry: entry[1].median))


def places(runs: Iterable[Run]) -> list[Place]:
    """Return the places of the runs: to train in float32 first."""
    found = Counter(m.group.place for run in runs for m in run.measured if m.seconds)
    return sorted(found, key=lambda p: (not _is_main(p), p.device, -found[p], p))


def main_places(runs: Sequence[Run]) -> list[Place]:
    """Return of each device the place that a first answer is about: to train in float32, with the
    number of threads that most rows have.
    """
    first: dict[str, Place] = {}
    for place in places(runs):
        if _is_main(place):
            first.setdefault(place.device, place)
    return list(first.values())


def _is_main(place: Place) -> bool:
    return (place.task, place.compute) == (TRAIN, FLOAT32)


def answers(
    runs: Sequence[Run], place: Place, idiomatic: bool = True, relative_to: str | None = None
) -> list[Answer]:
    """Return who is fastest in a place with each kind of model.

    runs: of one machine, the newest first. idiomatic: without the variants. relative_to: the label
    of the row whose seconds the ratios are to; of the fastest one without it.
    """
    kind_of_model = {run.model: run.kind for run in runs}
    measured = _units(runs, place, idiomatic)
    found = []
    for kind in KINDS:
        of_kind = {u: rows for u, rows in measured.items() if kind_of_model[u.model] == kind}
        if answer := _answer(kind, place, of_kind, relative_to):
            found.append(answer)
    return found


def _units(runs: Iterable[Run], place: Place, idiomatic: bool) -> Units:
    """Return what was measured in a place: of each unit the run with most rows, the newest of
    several.
    """
    found: Units = {}
    for run in runs:
        of_run: Units = {}
        for m in run.measured:
            is_asked_for = not idiomatic or m.cell.variant == IDIOMATIC
            if m.seconds and m.group.place == place and is_asked_for:
                of_run.setdefault(unit_of(run, m), {})[m.label] = m
        found |= {u: rows for u, rows in of_run.items() if len(rows) > len(found.get(u, {}))}
    return found


def _answer(kind: str, place: Place, measured: Units, relative_to: str | None) -> Answer | None:
    rows = dict.fromkeys((unit.model, label) for unit, rows in measured.items() for label in rows)
    coverage = Counter(label for _, label in rows)  # in the order of the runs, in every process
    most = max(coverage.values(), default=0)
    labels = [label for label, models in coverage.items() if models >= MIN_COVERAGE * most]
    while len(labels) > 1 and not (common := _common(measured, labels)):
        labels.remove(min(labels, key=lambda label: coverage[label]))
    if len(labels) < 2:
        return None
    means = _means(measured, common, labels, labels[0])
    if len(means) < 2 or (relative_to and relative_to not in means):
        return None
    order = list(_fastest_first(means))
    ratios = _means(measured, common, order, relative_to or order[0])
    lacking = [label for label in coverage if label not in ratios]
    return Answer(kind, place, sorted(common), ratios, lacking)


def _common(measured: Units, labels: Iterable[str]) -> list[Unit]:
    """Return the units in which all of the labels were measured."""
    return [unit for unit, rows in measured.items() if all(label in rows for label in labels)]


def _means(
    measured: Units, common: Iterable[Unit], labels: Iterable[str], base: str
) -> dict[str, Estimate]:
    """Return the mean of each row's ratios to another's over the models, of which each counts once
    however many units it has; without rows that have no round in common with it.
    """
    found = {}
    for label in labels:
        by_model: dict[str, list[dict[int, float]]] = {}
        for unit in common:
            rows = measured[unit]
            ratios = round_ratios(rows[label].seconds, rows[base].seconds)
            by_model.setdefault(unit.model, []).append(ratios)
        if mean := mean_over_models(list(by_model.values())):
            found[label] = mean
    return found


@dataclass(frozen=True)
class Step:
    """Hold what a row took with one version, relative to another row of the same run."""

    run: Run
    measured: Measured
    ratio: Estimate


def base(runs: Iterable[Run], label: str | None = None) -> str | None:
    """Return the row that others are relative to: one that most runs have, of several the one that
    the runs were asked for first. label: of the row that is compared with it, which it is not.
    """
    found = Counter(other for run in runs for other in run.labels if other != label)
    return next((name for name, _ in found.most_common(1)), None)


def histories(runs: Iterable[Run], label: str, base: str) -> list[tuple[str, list[Step]]]:
    """Return how a row's ratio to a base changed with its versions, the oldest first, after what
    was measured; only where there are several versions.
    """
    found: dict[tuple[Unit, Place, str], list[Step]] = {}
    for run in sorted(runs, key=lambda run: run.created):
        bases = {m.group: m.seconds for m in run.measured if m.label == base}
        for m in (m for m in run.measured if m.label == label):
            if ratio := mean_ratio([round_ratios(m.seconds, bases.get(m.group, {}))]):
                key = (unit_of(run, m), m.group.place, run.machine)
                found.setdefault(key, []).append(Step(run, m, ratio))
    return [
        (f"{unit.label}, {place_words(place)}; {machine}", steps)
        for (unit, place, machine), steps in found.items()
        if len({step.measured.versions for step in steps}) > 1
    ]


def place_words(place: Place) -> str:
    """Return a place for a reader: "train in float32 on the CPU with 2 threads"."""
    words = f"{place.task} in {place.compute} on {device_words(place.device)}"
    return f"{words} with {count(place.threads, 'thread')}" if place.device == "cpu" else words
