"""Make results and data files for the tests."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from crossbench.data import synthetic
from crossbench.inputs.names import FLOAT32, IDIOMATIC, full_name
from crossbench.results.cells import Cell, CellResult
from crossbench.results.comparison import SCHEMA, Comparison
from crossbench.results.epochs import TRAIN, Epoch, SystemActivity
from crossbench.results.machine import Machine
from crossbench.results.parity import Parity, PrecisionParity
from crossbench.results.settings import Data, Settings

AGREES = Parity({"loss": 1e-15}, {"loss": 1e-7}, {"loss": 1e-7})
DISAGREES = Parity({"loss": 1e-15, "gradient of conv1.weight": 0.3}, {"loss": 0.1}, {"loss": 1e-7})
PRECISION = PrecisionParity(
    {"logits": 3e-3, "gradient of dense1.weight": 4e-3},
    {"logits": 2e-3, "gradient of dense1.weight": 3e-3},
    {"logits": 4e-3, "gradient of dense1.weight": 5e-3},
    {"dense1.weight": 0.0},
    [],
)

EXAMPLES, STEPS = 1050, 10
"""Examples of an epoch, and its steps with batches of 100."""
QUIET = SystemActivity(0.0, 0.0, 0.0, 0, None, None)
SETTINGS = Settings(
    "m", 3, None, None, 1, 0, 600.0, "synthetic", None, {}, None, None, False, False
)


def epoch(number, seconds, system_activity=QUIET, at=1, steps=STEPS):
    """Return an epoch of round `number`. at: its index in the round, 0 for the first epoch."""
    started, losses = 10_000.0 * number + 1000 * at, [2.3] * (steps - 1) + [None]
    return Epoch(number, at, started, seconds, 2 * seconds, losses, {}, system_activity)


def epochs(seconds, steps=STEPS):
    """Return the epochs of all rounds. seconds: the first epoch's, then a steady one of each."""
    first, *steady = seconds
    rounds = [
        (epoch(i, first, at=0, steps=steps), epoch(i, s, steps=steps))
        for i, s in enumerate(steady, 1)
    ]
    return [e for pair in rounds for e in pair] or [epoch(1, first, at=0, steps=steps)]


def result(
    framework,
    seconds,
    device="cpu",
    status="ran",
    parity=AGREES,
    named=True,
    threads=2,
    name=None,
    task=TRAIN,
    batch_size=100,
    compute=FLOAT32,
):
    """Return a cell's result; framework: "torch" or "torch:tuned".

    seconds: the first epoch of each round, then a steady one of each.
    """
    framework, _, variant = framework.partition(":")
    variant = variant or IDIOMATIC
    return CellResult(
        Cell(
            name or f"{full_name(framework, variant)} {device}",
            framework,
            variant,
            framework.title(),
            device,
            threads,
            compute,
            task,
            batch_size,
            named,
        ),
        status=status,
        reason=None if status == "ran" else "why",
        parity=parity,
        epochs=epochs(seconds, EXAMPLES // batch_size) if seconds else [],
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
            "output_shape": [10],
            "classes": 10,
            "parameters": 9,
            "trained_parameters": 9,
            "forward_flops": 400_000,
            "training_flops": 1_000_000,
            "optimizer": {"type": "SGD", "momentum": 0.9},
            "data": {"type": "CIFAR10", "augmentation": None},
            "layers": [],
        },
        data=Data("pictures", "ab", EXAMPLES, 100),
        machine=Machine("cpu", 2, 2**34, [], None, "Linux", "3.11", {}),
        settings=replace(SETTINGS, **settings),
        results=list(results),
    )


def write_cifar(directory: Path, per_file: int = 20, seed: int = 0) -> Path:
    """Write a directory in CIFAR-10's binary layout, and return it."""
    directory.mkdir(exist_ok=True)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    split = synthetic.make_split(per_file * len(names), np.random.default_rng(seed))
    records = np.column_stack([split.labels, split.inputs.reshape(len(split), -1)])
    for name, part in zip(names, np.split(records, len(names)), strict=True):
        (directory / name).write_bytes(part.tobytes())
    return directory


def write_mnist(directory: Path, examples: int = 40) -> Path:
    """Write a directory in MNIST's format, and return it."""
    directory.mkdir(exist_ok=True)
    for prefix, seed in (("train", 0), ("t10k", 1)):
        random = np.random.default_rng(seed)
        split = synthetic.make_split(examples, random, synthetic.MNIST_SHAPE)
        for kind, array in (("images-idx3", split.inputs[:, 0]), ("labels-idx1", split.labels)):
            header = np.array([2048 + array.ndim, *array.shape], ">u4").tobytes()
            (directory / f"{prefix}-{kind}-ubyte").write_bytes(header + array.tobytes())
    return directory


def rows(text):
    """Return the cells of the table's two grids, by framework and column."""
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
