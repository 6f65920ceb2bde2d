"""Reads the results files of a folder, and holds of each what the pages of many runs need."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from ..report import layers
from ..report.formatting import count, joined
from ..report.summary import Summary, summarize
from ..results.cells import Cell, CellResult, Group
from ..results.comparison import Comparison
from ..results.rows import Row, row
from ..results.statistics import Estimate
from ..sweeps.folder import stem

NAME_CHARACTERS = 60
"""Characters of a page's name that are those of what it is about."""
VERSION = re.compile(r"\d+\.\d")
"""How a detail of a cell begins that is the version of a package."""
LAYERS_OF_KINDS = {
    "transformer": {"MultiHeadAttention"},
    "recurrent": {"LSTM", "GRU"},
    "convolutional": {"Conv", "Conv1D", "TransposedConv"},
}
"""The layers that make a model one of a kind; the first kind counts. A model without is dense."""
KINDS = ("convolutional", "recurrent", "transformer", "dense")


@dataclass(frozen=True)
class Measured:
    """Hold a cell with its row of figures.

    seconds: of a steady epoch by round; empty unless the cell is ranked. ratio: of them to those of
    the fastest of its group, paired by round. versions: of the framework's packages.
    """

    cell: Cell
    row: Row
    seconds: dict[int, float]
    ratio: Estimate | None
    versions: str

    @property
    def label(self) -> str:
        return self.cell.label

    @property
    def group(self) -> Group:
        return self.cell.group

    @property
    def epoch(self) -> str:
        """Return how many batches an epoch has, and how many examples each: "3 × 1,000"."""
        return f"{self.row.batches:,} × {self.row.batch_size:,}"


@dataclass(frozen=True)
class Run:
    """Hold of one results file what the pages of many runs need.

    file: its name in the folder. name: of its page. work: the same for two runs of the same work.
    identity: the same for two files of one run. explanations: which parts of a step make a row
    slower, in sentences.
    """

    file: str
    name: str
    identity: str
    work: str
    created: str
    crossbench: str
    model: str
    kind: str
    machine: str
    machine_facts: dict[str, str]
    source: str
    summary: Summary
    explanations: list[str]
    measured: list[Measured]

    @property
    def date(self) -> str:
        return self.created[:10]

    @property
    def keys(self) -> set[tuple[str, Group]]:
        """Return what identifies the ranked rows among those of the same work."""
        return {(m.cell.implementation, m.group) for m in self.measured if m.seconds}

    @property
    def labels(self) -> list[str]:
        """Return the labels of the ranked rows, each once."""
        return list(dict.fromkeys(m.label for m in self.measured if m.seconds))

    @property
    def frameworks(self) -> set[str]:
        """Return the frameworks of the ranked rows, without their variants."""
        return {m.cell.framework for m in self.measured if m.seconds}

    @property
    def subjects(self) -> dict[str, list[str]]:
        """Return what the run is about, by the kind of its pages."""
        return {"model": [self.model], "machine": [self.machine], "framework": self.labels}


def of_comparison(comparison: Comparison, file: str) -> Run:
    """Return what the pages need of a comparison."""
    comparison = comparison.frozen()
    model, data, settings = comparison.model, comparison.data, comparison.settings
    limits = (data.most_batches, data.most_examples, settings.epochs)
    machine = machine_name(comparison)
    cells = [r.name for r in comparison.results]
    return Run(
        file=file,
        name=page_name(stem(file)),
        identity=_digest(comparison.created, machine, model, data.sha256, cells),
        work=_digest(model, data.sha256, limits),
        created=comparison.created,
        crossbench=comparison.crossbench,
        model=model["name"],
        kind=kind_of(model),
        machine=machine,
        machine_facts=_machine_facts(comparison),
        source=model.get("source") or "",
        summary=summarize(comparison),
        explanations=layers.explanations(comparison),
        measured=[
            _measured(comparison, r) for r in comparison.results if r.status != "unavailable"
        ],
    )


def _measured(comparison: Comparison, result: CellResult) -> Measured:
    details, ranked = result.details.items(), comparison.ranked(result.cell.group)
    return Measured(
        cell=result.cell,
        row=row(comparison, result),
        seconds=comparison.seconds_by_round(result) if comparison.is_ranked(result) else {},
        ratio=comparison.paired(result, ranked[0]) if ranked else None,
        versions=", ".join(f"{name} {v}" for name, v in details if VERSION.match(v)),
    )


def kind_of(model: dict[str, object]) -> str:
    """Return the kind of a described model: one of KINDS."""
    types = set(re.findall(r'"type": "(\w+)"', json.dumps(model["layers"])))
    kinds = (kind for kind, layers in LAYERS_OF_KINDS.items() if layers & types)
    return next(kinds, "dense")


def machine_name(comparison: Comparison) -> str:
    """Return a name that runs share whose seconds may be compared: of the same machine."""
    machine = comparison.machine
    return ", ".join([machine.name, count(machine.cpus, "CPU"), *machine.gpus])


def _machine_facts(comparison: Comparison) -> dict[str, str]:
    machine = comparison.machine
    return {
        "processor": machine.cpu,
        "CPUs": f"{machine.cpus:,}",
        "memory": f"{machine.memory_bytes / 2**30:,.0f} GiB",
        "GPUs": joined(machine.gpus) or "none",
        "system": machine.system,
        "Python": machine.python,
    }


def current(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that no later one replaces, the newest first.

    A later run replaces one of the same work on the same machine if it ranks all rows that
    that one ranked.
    """
    found: list[Run] = []
    for run in sorted(runs, key=lambda run: (run.created, run.file), reverse=True):
        place = (run.machine, run.work)
        later = (other for other in found if (other.machine, other.work) == place)
        if not any(run.keys <= other.keys for other in later):
            found.append(run)
    return found


def page_name(text: str) -> str:
    """Return a name for a page's file: of small letters, digits, hyphens, dots and underscores
    alone, and another one for each text.
    """
    plain = re.sub(r"[^a-z0-9_.]+", "-", text.lower()).strip("-.")[:NAME_CHARACTERS]
    return plain if plain == text != "" else f"{plain}-{_digest(text)}".lstrip("-")


def _digest(*values: object) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
