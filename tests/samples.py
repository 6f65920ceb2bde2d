"""Made-up results and data files for the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crossbench.data import synthetic
from crossbench.results.comparison import SCHEMA, Comparison
from crossbench.results.records import Cell, CellResult, Data, Epoch, Machine, Parity, Settings

SAME = Parity(float64={"loss": 1e-15}, float32={"loss": 1e-7})
OTHER = Parity(float64={"loss": 1e-15, "gradient of conv1.weight": 0.3}, float32={"loss": 0.1})


def result(framework, seconds, device="cpu", status="ran", parity=SAME, named=True):
    """seconds: of the first epoch, then of each round."""
    return CellResult(
        Cell(framework, framework.title(), device, 2, named),
        status=status,
        reason=None if status == "ran" else "why",
        parity=parity,
        epochs=[Epoch(i, 0, s, 2 * s, [2.3, None], {}) for i, s in enumerate(seconds)],
        test_accuracy=0.25,
        peak_memory=2**30,
        details={"version": "1"},
    )


def comparison(*results, model=None):
    return Comparison(
        schema=SCHEMA,
        crossbench="0",
        created="2026-01-01T00:00:00+00:00",
        model=model
        or {"name": "m", "parameters": 9, "optimizer": {"type": "SGD", "momentum": 0.9}},
        data=Data("pictures", "ab", 1050, 100, 100, 10),
        machine=Machine("cpu", 2, 2**34, [], "Linux", "3.11", {}),
        settings=Settings(3, 1, 0, 2, 600),
        results=list(results),
    )


def write_cifar(directory: Path, per_file: int = 20, seed: int = 0) -> Path:
    """A directory in CIFAR-10's binary layout."""
    directory.mkdir(exist_ok=True)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    split = synthetic.split(per_file * len(names), np.random.default_rng(seed))
    records = np.column_stack([split.labels, split.images.reshape(len(split), -1)])
    for name, part in zip(names, np.split(records, len(names)), strict=True):
        (directory / name).write_bytes(part.tobytes())
    return directory
