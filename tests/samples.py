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
from crossbench.results.epochs import TRAIN, Epoch, SystemActivity, TargetEpoch, Usage
from crossbench.results.machine import Machine, Peak
from crossbench.results.parity import GradientParity, Parity, PrecisionParity
from crossbench.results.parts import PartCost, PartResult, PartTime
from crossbench.results.reference import Reference, ReferenceLosses
from crossbench.results.replay import Replay
from crossbench.results.settings import Data, Settings
from crossbench.results.untimed import UntimedCalls

AGREES = Parity({"loss": 1e-15}, {"loss": 1e-7}, {"loss": 1e-7})
DISAGREES = Parity({"loss": 1e-15, "gradient of conv1.weight": 0.3}, {"loss": 0.1}, {"loss": 1e-7})
PRECISION = PrecisionParity(
    {"logits": 3e-3, "gradient of dense1.weight": 4e-3},
    {"logits": 2e-3, "gradient of dense1.weight": 3e-3},
    {"logits": 4e-3, "gradient of dense1.weight": 5e-3},
    {"dense1.weight": 0.0},
    [],
)

FAST, SLOW = [9, *[2.0, 2.1] * 4], [9, *[4.2, 4.0] * 4]
"""Seconds of a row in eight rounds, and of one that takes twice as long, for `result`."""
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


def sized(framework, size, seconds, **fields):
    """Return the result of a cell with a batch size, which is in its name."""
    return result(framework, seconds, batch_size=size, name=f"{framework} cpu, {size}", **fields)


def two():
    """Return a comparison of torch with jax, which takes twice as long."""
    return comparison(result("torch", FAST), result("jax", SLOW))


def comparison(*results, model=None, **settings):
    return Comparison(
        schema=SCHEMA,
        crossbench="0",
        created="2026-01-01T00:00:00+00:00",
        model=model
        or {
            "name": "m",
            "input_shape": [3, 32, 32],
            "output_shape": [10],
            "classes": 10,
            "parameters": 9,
            "trained_parameters": 9,
            "forward_flops": 400_000,
            "training_flops": 1_000_000,
            "optimizer": {
                "type": "SGD",
                "momentum": 0.9,
                "nesterov": False,
                "weight_decay": 0.0,
                "matrices_only": False,
            },
            "data": {"type": "CIFAR10", "augmentation": None},
            "layers": [],
        },
        data=Data("pictures", "ab", EXAMPLES, 100),
        machine=Machine("cpu", 2, 2**34, [], None, "Linux", "3.11", {}),
        settings=replace(SETTINGS, **settings),
        results=list(results),
    )


def full_comparison():
    """Return a comparison in which every optional field has a value."""
    cpu, gpu = result("torch", [9, 2, 1, 3]), result("torch", [9, 1, 1], device="gpu:1")
    one = result("torch", [9, 4, 2, 6], threads=1, name="torch cpu, 1 thread")
    absent = result("flux", [], status="unavailable", parity=None)
    mixed = result("torch", [9, 2, 1, 3], compute="bfloat16", name="torch cpu, bfloat16")
    mixed.precision, mixed.test_loss, mixed.peak = PRECISION, 2.0, Peak(1.0, 2.0)
    mixed.epochs.append(epoch(4, 0.5, steps=5))
    gpu.peak, gpu.allocated, gpu.peak_problem = Peak(1.0, 2.0), 2**20, "out of memory"
    gpu.extra_problem = "its tracing of memory failed: out of luck"
    gpu.start_seconds, gpu.threads_reported, gpu.cpus_allowed = 1.0, 2, 2
    gpu.to_target = [TargetEpoch(1.0, 1.0, 0.5)]
    gpu.usage = [Usage(1, 9, 0.01, 1.5, 2**30, 0.8, 2**31, 200.0, 1500.0, 1450.0, ["power cap"])]
    metered = replace(QUIET, cpu_joules=1.0, gpu_joules=1.0)
    gpu.epochs[1] = replace(
        gpu.epochs[1], figures={"GC s": 0.1}, system_activity=metered, repeats=3
    )
    gpu.changes = cpu.changes = {10: {"conv1.weight": [1.0, None], "conv1.bias": [0.5, 0.25]}}
    cpu.undropped_losses = [2.3, None]
    cpu.loss_drift, cpu.change_drift = [1e-7, None], 1e-5
    cpu.other_changes = {0: {10: {"dense1.weight": [1.0, None]}}}
    cpu.replays = [Replay(1, 2, 1, 1, 10, 7, 2.3, None, 1e-7, None, 0.5)]
    cpu.untimed = {"place": UntimedCalls(3, 0.1, 0.1, 2, 0.01)}
    cpu.gradient = GradientParity({"gradient of w": 1e-7}, {"float32": {"gradient of w": None}})
    c = comparison(
        *(gpu, one, absent, mixed, cpu),
        prices={"cpu": 0.1, "gpu": 1.0},
        target_accuracy=0.5,
        trace_memory=True,
        baseline="torch",
    )
    dropout = {"type": "Dropout", "input_shape": [4]}
    c.model["layers"] = [dropout | {"type": "Branches", "join": "add", "branches": [[dropout], []]}]
    losses = ReferenceLosses("train", 100, {"first epoch": [2.3]}, {"first epoch": [2.31]})
    c.reference = Reference(["conv1.bias"], False, [losses])
    c.resumed = ["2026-01-02T00:00:00+00:00"]
    c.parts = [PartCost("conv1", 2, 10, 4.0, 8.0), PartCost("optimizer", 1, 0, 0.0, 0.0)]
    for r, factor in ((gpu, 1), (cpu, 2)):
        times = [PartTime(1, 0.1 * factor, 0.2 * factor, 1.5), PartTime(2, -0.01, 0.2, None)]
        r.parts = {"conv1": PartResult(1e-15, times), "optimizer": PartResult(None, [], "why")}
    return c


def places(value, path=()):
    """Yield the key path of every branch and leaf; of a list only of its first and last item."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, part in list(value.items()):
            yield from places(part, (*path, key))
    elif isinstance(value, list):
        for number in {0, len(value) - 1} if value else ():
            yield from places(value[number], (*path, number))


def write_cifar(directory: Path, per_file: int = 20, seed: int = 0) -> Path:
    """Write a directory in CIFAR-10's binary layout, and return it."""
    directory.mkdir(exist_ok=True)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    split = synthetic.make_split(
        synthetic.CIFAR10, per_file * len(names), np.random.default_rng(seed)
    )
    records = np.column_stack([split.labels, split.inputs.reshape(len(split), -1)])
    for name, part in zip(names, np.split(records, len(names)), strict=True):
        (directory / name).write_bytes(part.tobytes())
    return directory


def write_mnist(directory: Path, examples: int = 40) -> Path:
    """Write a directory in MNIST's format, and return it."""
    directory.mkdir(exist_ok=True)
    for prefix, seed in (("train", 0), ("t10k", 1)):
        random = np.random.default_rng(seed)
        split = synthetic.make_split(synthetic.MNIST, examples, random)
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
