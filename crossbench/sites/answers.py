"""Answers over many runs: who is fastest with each kind of model, and how a framework's versions
compare.
"""

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


def unit_of(run: Run, measured: Measured) -> Unit:
    return Unit(run.model, run.work, measured.batches, measured.group.batch_size)


@dataclass(frozen=True)
class Answer:
    """Say who is fastest in a place, with models of a kind.

    ratios: to the seconds of the fastest, by label, the fastest first: the geometric mean over the
    models of the units. lacking: labels of rows that lack too many of the units.
    """

    machine: str
    kind: str
    place: Place
    units: list[Unit]
    ratios: dict[str, Estimate]
    lacking: list[str]

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(unit.model for unit in self.units))


Units = dict[Unit, dict[str, Measured]]
"""The rows of each unit, by their label: all of one run."""


def machines(runs: Iterable[Run]) -> list[str]:
    """Return the machines, the one that was measured last first."""
    return list(dict.fromkeys(run.machine for run in runs))


def places(runs: Iterable[Run]) -> list[Place]:
    """Return the places of a machine's runs: to train in float32 first."""
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


def units(runs: Iterable[Run], place: Place, idiomatic: bool = True) -> Units:
    """Return what was measured in a place: of each unit the run with most rows, the newest of
    several.

    runs: the newest first. idiomatic: without the variants.
    """
    found: Units = {}
    for run in runs:
        of_run: Units = {}
        for m in run.measured:
            if m.seconds and m.group.place == place and not (idiomatic and _is_variant(m)):
                unit = unit_of(run, m)
                of_run.setdefault(unit, {})[m.label] = m
        more = {u: rows for u, rows in of_run.items() if len(rows) > len(found.get(u, {}))}
        found |= more
    return found


def _is_variant(measured: Measured) -> bool:
    return measured.row.variant != IDIOMATIC


def answers(runs: Sequence[Run], place: Place, idiomatic: bool = True) -> list[Answer]:
    """Return who is fastest in a place with each kind of model. runs: of one machine."""
    kind_of_model = {run.model: run.kind for run in runs}
    measured = units(runs, place, idiomatic)
    found = []
    for kind in KINDS:
        of_kind = {u: rows for u, rows in measured.items() if kind_of_model[u.model] == kind}
        if answer := _answer(runs[0].machine, kind, place, of_kind):
            found.append(answer)
    return found


def _answer(machine: str, kind: str, place: Place, measured: Units) -> Answer | None:
    rows = dict.fromkeys((unit.model, label) for unit, rows in measured.items() for label in rows)
    coverage = Counter(label for _, label in rows)  # in the order of the runs, in every process
    if len(coverage) < 2:
        return None
    labels = [n for n, times in coverage.items() if times >= MIN_COVERAGE * max(coverage.values())]
    common: list[Unit] = []
    while len(labels) > 1 and not common:
        common = [unit for unit, rows in measured.items() if all(n in rows for n in labels)]
        if not common:
            labels.remove(min(labels, key=lambda n: coverage[n]))
    if not common:
        return None
    base = labels[0]
    means = {n: mean for n in labels if (mean := _mean(measured, common, n, base))}
    if len(means) < 2:
        return None
    order = sorted(means, key=lambda n: means[n].median)
    ratios = {n: mean for n in order if (mean := _mean(measured, common, n, order[0]))}
    lacking = [label for label in coverage if label not in ratios]
    return Answer(machine, kind, place, sorted(common), ratios, lacking)


def _mean(measured: Units, common: Iterable[Unit], label: str, base: str) -> Estimate | None:
    """Return the mean of a row's ratios to another's over the models, of which each counts once
    however many units it has.
    """
    by_model: dict[str, list[dict[int, float]]] = {}
    for unit in common:
        rows = measured[unit]
        ratios = round_ratios(rows[label].seconds, rows[base].seconds)
        by_model.setdefault(unit.model, []).append(ratios)
    return mean_over_models(list(by_model.values()))


@dataclass(frozen=True)
class Step:
    """Hold what a row took with one version, relative to another row of the same run."""

    run: Run
    measured: Measured
    ratio: Estimate


def histories(runs: Iterable[Run], label: str, base: str) -> list[tuple[str, list[Step]]]:
    """Return how a row's ratio to a base changed with its versions, the oldest first, after what
    was measured; only where there are several versions.
    """
    found: dict[tuple[Unit, Place, str], list[Step]] = {}
    for run in sorted(runs, key=lambda run: run.created):
        bases = {m.group: m.seconds for m in run.measured if m.label == base}
        for m in run.measured:
            ratio = _paired(m.seconds, bases.get(m.group, {}))
            if m.label == label and ratio:
                key = (unit_of(run, m), m.group.place, run.machine)
                found.setdefault(key, []).append(Step(run, m, ratio))
    return [
        (f"{unit.label}, {place_words(place)}; {machine}", steps)
        for (unit, place, machine), steps in found.items()
        if len({step.measured.versions for step in steps}) > 1
    ]


def _paired(numerator: Mapping[int, float], denominator: Mapping[int, float]) -> Estimate | None:
    return mean_ratio([round_ratios(numerator, denominator)])


def place_words(place: Place) -> str:
    """Return a place for a reader: "train in float32 on the CPU with 2 threads"."""
    words = f"{place.task} in {place.compute} on {device_words(place.device)}"
    return f"{words} with {count(place.threads, 'thread')}" if place.device == "cpu" else words
