"""Makes the programs that train a whole model, one for each row, with the arrays that they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .. import adapters, data as datasets
from ..inputs.errors import SpecError
from ..inputs.names import FLOAT32, IDIOMATIC
from ..models import Model
from ..results.cells import Cell, CellResult
from ..results.comparison import Comparison
from ..results.epochs import TRAIN
from ..results.settings import Data, Settings
from ..source.training_programs import Training
from .choice import OF_MODEL, without_programs
from .program import Program, WriteFile, file_words, told_apart, write_arrays


@dataclass
class Examples:
    """Hold what the rows of a run train on: the model that fits the data, and the data.

    dataset: None for programs that nobody runs, without the arrays that they read.
    """

    model: Model
    dataset: datasets.Dataset | None
    data: Data
    settings: Settings

    @property
    def path(self) -> str | None:
        """Return the path of CIFAR-10's published files, or without a dataset its last word; None
        where the programs read a file that is written beside them.
        """
        found = datasets.published_path(
            self.model.data, self.settings.data, self.data.name, self.data.note
        )
        return found if found is None or self.dataset else Path(found).name


def of_cells(
    cells: Iterable[Cell], examples: Examples, progress: Callable[[str], None]
) -> list[Program]:
    """Return a program for each cell that trains.

    progress: called with a line for a cell that has none. Raise SpecError where none has one.
    """
    training = (cell for cell in cells if cell.task == TRAIN)
    # a program is the same on each GPU
    cells = {(c.implementation, c.device_type, *c.group[1:]): c for c in training}.values()
    several_sizes = len({cell.batch_size for cell in cells}) > 1
    found, reasons = [], {}
    for cell in cells:
        try:
            found.append(_of_cell(cell, examples, several_sizes))
        except NotImplementedError as error:
            reasons[cell] = str(error)
    if not found:
        raise SpecError(next(iter(reasons.values()), "there is no row that trains"))
    for cell, reason in reasons.items():
        progress(f"no program for {cell.name}: {reason}")
    return told_apart(found)


def _of_cell(cell: Cell, examples: Examples, several_sizes: bool) -> Program:
    """Return the program of a cell; raise NotImplementedError, with the reason, where it has none.

    several_sizes: whether the cells have several batch sizes, each with a file of examples.
    """
    if reason := without_programs(cell.framework, OF_MODEL):
        raise NotImplementedError(reason)
    adapter = adapters.get(cell.framework)
    if cell.compute not in adapter.program_computes:
        raise NotImplementedError(f"programs compute in {FLOAT32}, not in {cell.compute}")
    programs: Any = adapter.programs
    framework, size, suffix = file_words(cell.framework), cell.batch_size, adapter.arrays_suffix
    variant = "" if cell.variant == IDIOMATIC else f"_{cell.variant}"
    has_own_weights = type(adapters.get(cell.framework, cell.variant)) is not type(adapter)
    training = Training(
        model=examples.model,
        variant=cell.variant,
        device=cell.device_type,
        threads=cell.threads,
        batch_size=size,
        batches=examples.data.batches(size),
        test_examples=examples.data.test_examples,
        seed=examples.settings.seed,
        data=examples.path,
        weights=f"weights_{framework}{variant * has_own_weights}{suffix}",
        examples=f"data{f'_batch{size}' * several_sizes}{suffix}",
        compute=cell.compute,
    )
    source = programs.training_program(training)
    arrays: dict[str, WriteFile] = {training.weights: partial(_write_weights, training, programs)}
    if examples.dataset and (read := programs.example_arrays(training, examples.dataset)):
        arrays[training.examples] = partial(write_arrays, arrays=read)
    compute = "" if cell.compute == FLOAT32 else f"_{cell.compute}"
    name = f"train_{framework}{variant}{compute}{'_gpu' * cell.on_gpu}{adapter.program_suffix}"
    return Program(
        **_described(cell, training.model.name, training.batches),
        source=source,
        path=Path(name),
        reads=tuple(map(Path, arrays)),
        arrays=arrays,
    )


def that_ran(row: CellResult, comparison: Comparison) -> Program:
    """Return what a row ran, as a program without data, initial weights and loop."""
    cell = row.cell
    try:
        suffix = adapters.get(cell.framework).program_suffix
    except SpecError:  # a plug-in that is not installed here
        suffix = ".txt"
    batches = comparison.data.batches(cell.batch_size)
    path = Path(f"ran_{file_words(cell.name)}{suffix}")
    described = _described(cell, comparison.model["name"], batches)
    return Program(**described, source=row.source_code, path=path)


def _described(cell: Cell, model: str, batches: int) -> dict[str, Any]:
    """Return what a program of a model says of its cell."""
    return {
        "framework": cell.framework,
        "variant": cell.variant,
        "title": cell.label,
        "model": model,
        "batch_size": cell.batch_size,
        "batches": batches,
        "threads": cell.threads,
    }


def _write_weights(training: Training, programs: Any, path: Path) -> None:
    """Write the initial weights of a program to a new file."""
    weights = training.model.initial_weights(training.seed)
    write_arrays(path, programs.initial_arrays(training, weights))
