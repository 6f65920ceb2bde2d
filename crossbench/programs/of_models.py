"""Makes the programs that train a whole model, one for each row, with the arrays that they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from .. import adapters, data as datasets
from ..inputs.errors import SpecError
from ..inputs.names import FLOAT32, IDIOMATIC
from ..models import Model
from ..results.cells import Cell, CellResult
from ..results.comparison import Comparison
from ..results.epochs import TRAIN
from ..results.settings import Data, Settings
from ..source.arrays import write_arrays
from ..source.training_programs import Training
from .choice import OF_MODEL, programs_of, without_programs
from .program import Program, WriteFile, file_words, told_apart


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


@dataclass
class Programs:
    """Hold programs, and what writes the arrays that they read, by file name."""

    programs: list[Program] = field(default_factory=list)
    arrays: dict[str, WriteFile] = field(default_factory=dict)


def of_cells(
    cells: Iterable[Cell], examples: Examples, skip: Callable[[Cell, str], None]
) -> Programs:
    """Return a program for each cell that trains.

    skip: called for a cell that has none, with the reason. Raise SpecError where none has one.
    """
    found = Programs()
    training = (cell for cell in cells if cell.task == TRAIN)
    # a program is the same on each GPU
    cells = {(c.implementation, c.device_type, *c.group[1:]): c for c in training}.values()
    several_sizes = len({cell.batch_size for cell in cells}) > 1
    reasons = {}
    for cell in cells:
        try:
            if reason := without_programs(cell.framework, OF_MODEL):
                raise NotImplementedError(reason)
            if cell.compute not in adapters.get(cell.framework).program_computes:
                raise NotImplementedError(f"programs compute in {FLOAT32}, not in {cell.compute}")
            _add(found, cell, examples, several_sizes)
        except NotImplementedError as error:
            reasons[cell] = str(error)
    if not found.programs:
        raise SpecError(next(iter(reasons.values()), "there is no row that trains"))
    for cell, reason in reasons.items():
        skip(cell, reason)
    found.programs = told_apart(found.programs)
    return found


def _add(found: Programs, cell: Cell, examples: Examples, several_sizes: bool) -> None:
    """Add the program of a cell, and the arrays that it reads."""
    adapter, programs = adapters.get(cell.framework), programs_of(cell.framework)
    training = _training(cell, examples, several_sizes)
    source = programs.training_program(training)
    found.arrays[training.weights] = partial(_write_weights, training, cell.framework)
    reads = [training.weights]
    dataset = examples.dataset
    if dataset and (arrays := programs.example_arrays(training, dataset)):
        found.arrays[training.examples] = partial(write_arrays, arrays=arrays)
        reads.append(training.examples)
    variant = _variant(cell)
    compute = "" if cell.compute == FLOAT32 else f"_{cell.compute}"
    name = f"train_{file_words(cell.framework)}{variant}{compute}{'_gpu' if cell.on_gpu else ''}"
    path = Path(f"{name}{adapter.program_suffix}")
    program = _program(cell, training.model.name, training.batches, source, path)
    found.programs.append(replace(program, reads=tuple(map(Path, reads))))


def _variant(cell: Cell) -> str:
    """Return the variant in the name of a file; nothing for the idiomatic one."""
    return "" if cell.variant == IDIOMATIC else f"_{cell.variant}"


def that_ran(row: CellResult, comparison: Comparison) -> Program:
    """Return what a row ran, as a program without data, initial weights and loop."""
    cell = row.cell
    try:
        suffix = adapters.get(cell.framework).program_suffix
    except SpecError:  # a plug-in that is not installed here
        suffix = ".txt"
    batches = comparison.data.batches(cell.batch_size)
    path = Path(f"ran_{file_words(cell.name)}{suffix}")
    return _program(cell, comparison.model["name"], batches, row.source_code, path)


def _program(cell: Cell, model: str, batches: int, source: str, path: Path) -> Program:
    """Return the program of a cell, which reads nothing."""
    return Program(
        framework=cell.framework,
        variant=cell.variant,
        title=cell.label,
        model=model,
        part=None,
        batch_size=cell.batch_size,
        batches=batches,
        threads=cell.threads,
        seconds=None,
        source=source,
        path=path,
    )


def _training(cell: Cell, examples: Examples, several_sizes: bool) -> Training:
    """Return what the program of a cell does."""
    model, settings, size = examples.model, examples.settings, cell.batch_size
    adapter = adapters.get(cell.framework)
    suffix = adapter.arrays_suffix
    is_own = type(adapters.get(cell.framework, cell.variant)) is not type(adapter)
    ending = f"_batch{size}" if several_sizes else ""
    return Training(
        model=model,
        variant=cell.variant,
        device=cell.device_type,
        threads=cell.threads,
        batch_size=size,
        batches=examples.data.batches(size),
        test_examples=examples.data.test_examples,
        seed=settings.seed,
        data=examples.path,
        weights=f"weights_{file_words(cell.framework)}{_variant(cell) * is_own}{suffix}",
        examples=f"data{ending}{suffix}",
        compute=cell.compute,
    )


def _write_weights(training: Training, framework: str, path: Path) -> None:
    """Write the initial weights of a program to a new file."""
    weights = training.model.initial_weights(training.seed)
    write_arrays(path, programs_of(framework).initial_arrays(training, weights))
