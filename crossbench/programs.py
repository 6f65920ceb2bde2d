"""Writes programs for the developers of a framework: `script`.

A program times a part of a training step in one framework, without crossbench.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import adapters
from .arguments import Names, Numbers
from .inputs.checks import shown
from .inputs.errors import ProgramError, ResultsError, SpecError
from .inputs.names import IDIOMATIC
from .models import Model
from .models.parts import Part, find_part, parts
from .plan import unavailable_reason
from .results.breakdown import differences, measured
from .results.cells import CellResult
from .results.comparison import Comparison, load
from .results.epochs import TRAIN
from .spec import find_model, make_spec
from .workload import Adapter


@dataclass(frozen=True)
class Program:
    """Hold a program of a part of a training step.

    framework: its name, and title: as its users write it. seconds: what the part took in the run of
    the results file; None where that is not known.
    """

    framework: str
    title: str
    model: str
    part: str
    batch_size: int
    threads: int
    seconds: float | None
    source: str
    path: Path


def script(
    results: str | Path | None = None,
    *,
    model: str | Model | None = None,
    frameworks: Names = None,
    layer: str | None = None,
    batch_size: Numbers = None,
    out: str | Path = ".",
    progress: Callable[[str], None] = lambda _: None,
) -> list[Program]:
    """Write programs that time a part of a training step, each in one framework alone.

    A program needs the framework, and NumPy where it is in Python. All programs of a part make the
    same weights and inputs by a formula, and print the same sums of the output and the gradients.
    They are written as the framework's users write them, and run on the CPU.

    results: results file of a run, which gives the model, the frameworks and the batch size.
        Without `layer` it must be a run with layers: each row that is slower than the fastest gets
        the part that explains most of the difference, and so does the fastest; a row alone gets its
        longest part.
    model: a name that `models` lists, FILE.py:NAME, or a Model; lenet by default. Beside results it
        is needed only if the run was given a Model: the same one.
    frameworks: names such as "torch,jax"; by default all installed ones that have programs.
    layer: name of a layer in the model, such as conv1; loss or optimizer. "flatten1, dense1" are
        timed together.
    batch_size: one number; by default the model's.
    out: folder of the new files; it is made where it does not exist.
    progress: called with a line for each row of the results that gets no program.

    Raises SpecError for wrong arguments, ResultsError for an unusable results file, and
    ProgramError if a file exists already or cannot be written.
    """
    if results is None:
        programs = _of_arguments(model, frameworks, layer, batch_size)
    elif frameworks is None and batch_size is None:
        programs = _of_results(results, model, layer, progress)
    else:
        raise SpecError(
            f"{results} gives the frameworks and the batch size: leave them out, or the file"
        )
    try:
        directory = Path(out)
    except TypeError:
        raise ProgramError(f"a folder is named by its path, not {shown(out)}") from None
    placed = [replace(program, path=directory / program.path) for program in programs]
    _write(placed, directory)
    return placed


def _of_arguments(
    model: str | Model | None, frameworks: Names, layer: str | None, batch_size: Numbers
) -> list[Program]:
    """Return the programs of a layer in each framework that is named."""
    given: Any = {} if model is None else {"model": model}
    spec = make_spec(frameworks, batch_size=batch_size, **given)
    if len(spec.batch_sizes) > 1:
        sizes = ", ".join(map(str, spec.batch_sizes))
        raise SpecError(f"a program has one batch size, not {sizes}: name one")
    part = _named_part(spec.model, layer)
    named = _installed() if spec.frameworks is None else map(_idiomatic, spec.frameworks)
    names = list(dict.fromkeys(named))
    for reason in filter(None, map(_without_programs, names)):
        raise SpecError(reason)
    try:
        return [
            _program(name, part, spec.model, spec.batch_sizes[0], spec.threads[0]) for name in names
        ]
    except NotImplementedError as error:
        raise SpecError(str(error)) from None


def _named_part(model: Model, layer: str | None) -> Part:
    if layer is None:
        known = "; ".join(part.name for part in parts(model))
        raise SpecError(
            f"name a layer of {model.name} with --layer, or a results file of a run with --layers: "
            f"choose from {known}"
        )
    if not isinstance(layer, str):
        raise SpecError(f"layer must be the name of a layer, not {shown(layer)}")
    return find_part(model, layer)


def _idiomatic(name: str) -> str:
    """Return the framework of a name; SpecError where it names another variant."""
    framework, variant = adapters.split(name)
    if variant not in (None, IDIOMATIC):
        raise SpecError(f"{name}: {IDIOMATIC_ALONE}: name {framework}")
    return framework


IDIOMATIC_ALONE = "a program is written in the idiomatic way alone"


def _installed() -> list[str]:
    """Return the installed frameworks that have programs; SpecError if there is none."""
    having = [name for name in adapters.loadable() if _without_programs(name) is None]
    found = [name for name in having if unavailable_reason(name, IDIOMATIC, "cpu") is None]
    if not found:
        raise SpecError(
            f"no framework that has programs is installed: install one of {', '.join(having)}"
        )
    return found


def _without_programs(framework: str) -> str | None:
    """Return why a framework has no programs, in a line; None where it has."""
    try:
        adapter = adapters.get(framework)
    except SpecError as error:  # of another machine's results
        return str(error)
    own = getattr(type(adapter), "part_program", Adapter.part_program)
    if own is not Adapter.part_program:
        return None
    return f"the adapter of {adapter.title} writes no programs"


def _program(framework: str, part: Part, model: Model, batch_size: int, threads: int) -> Program:
    """Return a program, its path without a folder."""
    adapter = adapters.get(framework)
    words = [*part.name.split(", "), *re.findall(r"\w+", framework)]
    return Program(
        framework=framework,
        title=adapter.title,
        model=model.name,
        part=part.name,
        batch_size=batch_size,
        threads=threads,
        seconds=None,
        source=adapter.part_program(part, model, batch_size, threads),
        path=Path(f"{'_'.join(words)}{adapter.program_suffix}"),
    )


def _of_results(
    results: str | Path,
    model: str | Model | None,
    layer: str | None,
    progress: Callable[[str], None],
) -> list[Program]:
    """Return the programs of a layer in each row, or of what makes rows slower than the fastest."""
    comparison = load(results).frozen()
    fitted = _model_of(comparison, model, results)
    rows = [row for row in comparison.results if _may_have_program(row, progress)]
    if layer is not None:
        part = _named_part(fitted, layer)
        chosen = [(row, part.name) for row in rows]
    elif measured(comparison):
        chosen = _slow_parts(comparison, rows, progress)
    else:
        raise SpecError(
            f"{results} has no times of layers: run with --layers, or name a layer with --layer"
        )
    programs = []
    for row, name in chosen:
        try:
            programs.append(_of_row(comparison, row, find_part(fitted, name), fitted))
        except NotImplementedError as error:
            progress(f"no program for {row.name}: {error}")
    if not programs:
        raise SpecError(
            f"{results} has no row that a program can be written for: it must train on the CPU, in "
            "the idiomatic variant of a framework that has programs"
        )
    return _told_apart(programs)


def _model_of(comparison: Comparison, model: str | Model | None, results: str | Path) -> Model:
    """Return the model of a results file, with the vocabulary of the run's data.

    Raises SpecError where it does not load, and ResultsError where it is another one here.
    """
    found = find_model(comparison.settings.model if model is None else model)
    match comparison.model:
        case {"layers": [{"vocabulary": int(vocabulary)}, *_]}:
            found = found.with_vocabulary(vocabulary)
        case _:
            found = found.with_vocabulary(None)
    if found.description() != comparison.model:
        raise ResultsError(
            f"cannot write programs for {results}: its model differs from {found.name} here"
        )
    return found


def _may_have_program(row: CellResult, progress: Callable[[str], None]) -> bool:
    """Return whether a row trains in a way that programs are written for; else tell why not."""
    cell = row.cell
    if cell.task != TRAIN or row.status == "unavailable":
        return False
    if cell.variant != IDIOMATIC:
        reason: str | None = IDIOMATIC_ALONE
    elif cell.on_gpu:
        reason = "a program runs on the CPU alone"
    else:
        reason = _without_programs(cell.framework)
    if reason:
        progress(f"no program for {row.name}: {reason}")
    return not reason


def _slow_parts(
    comparison: Comparison, rows: list[CellResult], progress: Callable[[str], None]
) -> list[tuple[CellResult, str]]:
    """Return the rows with the name of a part each: that by which one is slower than the fastest of
    its group, for both; for a row alone its longest part.
    """
    names = {row.name for row in measured(comparison)} & {row.name for row in rows}
    found: dict[tuple[str, str], CellResult] = {}
    for group in comparison.groups:
        ranked = [row for row in comparison.ranked(group) if row.name in names]
        for row in ranked[1:] or ranked:
            part = _slow_part(comparison, row, ranked[0])
            if part is None:
                progress(
                    f"no program for {row.name}: no part of its step is known to be slower than in "
                    f"{ranked[0].name}; --layer names one"
                )
                continue
            found |= {(one.name, part): one for one in (row, ranked[0])}
    return [(row, part) for (_, part), row in found.items()]


def _slow_part(comparison: Comparison, row: CellResult, fastest: CellResult) -> str | None:
    """Return the part that a row takes longest for, beyond what the fastest row does; None where
    there is none, or a part has no figures.
    """
    if row is fastest:
        seconds = {part.name: _seconds(comparison, row, part.name) for part in comparison.parts}
        known = {name: taken for name, taken in seconds.items() if taken is not None}
        return max(known, key=lambda name: known[name], default=None)
    for part, slower, faster in differences(comparison, row, fastest)[:1]:
        return part.name if slower > faster else None
    return None


def _seconds(comparison: Comparison, row: CellResult, name: str) -> float | None:
    """Return the seconds per step of a part in a row, equal layers included; None if unknown."""
    for part in comparison.parts:
        figures = comparison.part_figures(part).get(row.name)
        if part.name == name and figures and figures.seconds:
            return figures.seconds.median
    return None


def _of_row(comparison: Comparison, row: CellResult, part: Part, model: Model) -> Program:
    cell, seconds = row.cell, _seconds(comparison, row, part.name)
    program = _program(cell.framework, part, model, cell.batch_size, cell.threads)
    return replace(program, seconds=None if seconds is None else seconds / part.count)


def _told_apart(programs: list[Program]) -> list[Program]:
    """Return the programs with their batch size and threads in the name, if they have several."""
    found = []
    for program in programs:
        name = program.path.stem
        if len({other.batch_size for other in programs}) > 1:
            name += f"_batch{program.batch_size}"
        if len({other.threads for other in programs}) > 1:
            name += f"_threads{program.threads}"
        found.append(replace(program, path=Path(f"{name}{program.path.suffix}")))
    return found


def _write(programs: list[Program], directory: Path) -> None:
    """Write all programs to new files; ProgramError where that is not possible."""
    for program in programs:  # before any of them is written
        with _reported(program.path):
            if os.path.lexists(program.path):
                raise ProgramError(f"{program.path} exists already: choose another folder")
    with _reported(directory):
        directory.mkdir(parents=True, exist_ok=True)
    for program in programs:
        with _reported(program.path), open(program.path, "x", encoding="utf-8") as file:
            try:
                file.write(program.source)
                file.flush()
            except OSError:
                program.path.unlink()  # only a part of it was written
                raise


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Raise ProgramError for what the file system says."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ProgramError(f"{path} cannot be written: {why}") from None
