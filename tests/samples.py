"""Made-up results and data files for the tests."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from crossbench.data import synthetic
from crossbench.results.comparison import SCHEMA, Comparison
from crossbench.results.records import (
    Cell,
    CellResult,
    Data,
    Epoch,
    Machine,
    Parity,
    Settings,
    Surroundings,
)

SAME = Parity({"loss": 1e-15}, {"loss": 1e-7}, {"loss": 1e-7})
OTHER = Parity({"loss": 1e-15, "gradient of conv1.weight": 0.3}, {"loss": 0.1}, {"loss": 1e-7})


QUIET = Surroundings(0.0, 0.0, 0.0, 0, None, None)
SETTINGS = Settings("m", 3, 0.05, 600.0, 1, 0, 600.0, "synthetic", None, {}, None, False)


def epoch(number, seconds, surroundings=QUIET, at=1):
    """The steady one of a round; at: 0 for the first."""
    started = 10_000.0 * number + 1000 * at
    return Epoch(number, at, started, seconds, 2 * seconds, [2.3, None], {}, surroundings)


def epochs(seconds):
    """A round's first epoch, which all rounds have alike, and the steady one of each round."""
    first, *steady = seconds
    rounds = [(epoch(i, first, at=0), epoch(i, s)) for i, s in enumerate(steady, 1)]
    return [e for pair in rounds for e in pair] or [epoch(1, first, at=0)]


def result(
    framework, seconds, device="cpu", status="ran", parity=SAME, named=True, threads=2, name=None
):
    """seconds: of the first epoch of every round, then of the steady one of each."""
    return CellResult(
        Cell(name or f"{framework} {device}", framework, framework.title(), device, threads, named),
        status=status,
        reason=None if status == "ran" else "why",
        parity=parity,
        epochs=epochs(seconds) if seconds else [],
        test_accuracy=0.25,
        peak_memory=2**30,
        details={"version": "1"},
    )


def comparison(*results, model=None, **settings):
    return Comparison(
        schema=SCHEMA,
        crossbench="0",
        created="2026-01-01T00:00:00+00:00",
        model=model
        or {
            "name": "m",
            "parameters": 9,
            "training_flops": 1_000_000,
            "optimizer": {"type": "SGD", "momentum": 0.9},
            "data": {"type": "CIFAR10", "augmentation": None},
            "layers": [],
        },
        data=Data("pictures", "ab", 1050, 100, 100, 10, False),
        machine=Machine("cpu", 2, 2**34, [], None, "Linux", "3.11", {}),
        settings=replace(SETTINGS, **settings),
        results=list(results),
    )


def write_cifar(directory: Path, per_file: int = 20, seed: int = 0) -> Path:
    """A directory in CIFAR-10's binary layout."""
    directory.mkdir(exist_ok=True)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    split = synthetic.split(per_file * len(names), np.random.default_rng(seed))
    records = np.column_stack([split.labels, split.inputs.reshape(len(split), -1)])
    for name, part in zip(names, np.split(records, len(names)), strict=True):
        (directory / name).write_bytes(part.tobytes())
    return directory


def rows(text):
    """The cells of the table's two grids, by the framework."""
    found = {}
    grids = [part for part in text.split("\n\n") if "\n---" in part]
    for lines in (grid.splitlines() for grid in grids[:2]):
        ends = [0]
        for word in lines[1].split():
            ends.append(ends[-1] + len(word) + 2)
        head, _, *body = [[line[a:b].strip() for a, b in pairwise(ends)] for line in lines]
        for cells in body:
            found.setdefault(cells[0], {}).update(zip(head, cells, strict=True))
    return found
