"""Chooses the parts of a training step that programs are written for, and the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import adapters
from ..inputs.checks import shown
from ..inputs.errors import SpecError
from ..inputs.names import IDIOMATIC
from ..models import Model
from ..models.parts import Part, find_part
from ..results.breakdown import differences, measured
from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.epochs import TRAIN
from ..source.part_programs import part_training
from ..spec import Spec
from .choice import OF_PART, installed, without_programs
from .program import Program, file_words, told_apart

SLOWEST = "slowest"
"""Stands for the part that makes a row slower than the fastest one."""


def of_arguments(spec: Spec, layer: str) -> list[Program]:
    """Return the programs of a layer in each framework that is named."""
    if len(spec.batch_sizes) > 1:
        sizes = ", ".join(map(str, spec.batch_sizes))
        raise SpecError(f"a program of a layer has one batch size, not {sizes}: name one")
    part = _named_part(spec.model, layer)
    named = installed(OF_PART) if spec.frameworks is None else map(_idiomatic, spec.frameworks)
    names = list(dict.fromkeys(named))
    for name in names:
        if reason := without_programs(name, OF_PART):
            raise SpecError(reason)
    try:
        found = [
            _programs(name, part, spec.model, spec.batch_sizes[0], spec.threads[0])
            for name in names
        ]
    except NotImplementedError as error:
        raise SpecError(str(error)) from None
    return [program for programs in found for program in programs]


def _named_part(model: Model, layer: str) -> Part:
    if not isinstance(layer, str):
        raise SpecError(f"layer must be the name of a layer, not {shown(layer)}")
    return find_part(model, layer)


def _idiomatic(name: str) -> str:
    """Return the framework of a name; SpecError where it names another variant."""
    framework, variant = adapters.split(name)
    if variant not in (None, IDIOMATIC):
        raise SpecError(f"{name}: {IDIOMATIC_ALONE}: name {framework}")
    return framework


IDIOMATIC_ALONE = "a program of a layer is written in the idiomatic way alone"


def _programs(
    framework: str, part: Part, model: Model, batch_size: int, threads: int
) -> list[Program]:
    """Return the program with a part, and the one without it, if anything is before the part.

    Their paths have no folder.
    """
    adapter = adapters.get(framework)
    writer: Any = adapter.programs
    found = []
    for work in part.works[::-1]:
        training = part_training(part, work, model, batch_size, threads)
        without = work is part.before
        words = [*part.name.split(", "), file_words(framework), *(["without"] if without else [])]
        found.append(
            Program(
                framework=framework,
                variant=IDIOMATIC,
                title=adapter.title,
                model=model.name,
                part=part.name,
                batch_size=training.batch_size,
                threads=threads,
                source=writer.part_program(training),
                path=Path(f"{'_'.join(words)}{adapter.program_suffix}"),
                without_part=without,
            )
        )
    return found


def of_results(
    comparison: Comparison,
    model: Model,
    layer: str,
    results: str | Path,
    progress: Callable[[str], None],
) -> list[Program]:
    """Return the programs of a layer in each row, or of what makes rows slower than the fastest.

    results: the file of the comparison, for messages.
    """
    rows = [row for row in comparison.results if _may_have_program(row, progress)]
    if layer != SLOWEST:
        part = _named_part(model, layer)
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
            programs += _of_row(comparison, row, find_part(model, name), model)
        except NotImplementedError as error:
            progress(f"no program for {row.name}: {error}")
    if not programs:
        raise SpecError(
            f"{results} has no row that a program of a layer can be written for: it must train on "
            "the CPU, in the idiomatic variant of a framework that has programs"
        )
    return told_apart(programs)


def _may_have_program(row: CellResult, progress: Callable[[str], None]) -> bool:
    """Return whether a row trains in a way that programs are written for; else tell why not."""
    cell = row.cell
    if cell.task != TRAIN or row.status == "unavailable":
        return False
    if cell.variant != IDIOMATIC:
        reason: str | None = IDIOMATIC_ALONE
    elif cell.on_gpu:
        reason = "a program of a layer runs on the CPU alone"
    else:
        reason = without_programs(cell.framework, OF_PART)
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


def _of_row(comparison: Comparison, row: CellResult, part: Part, model: Model) -> list[Program]:
    cell, seconds = row.cell, _seconds(comparison, row, part.name)
    whole, *without = _programs(cell.framework, part, model, cell.batch_size, cell.threads)
    own = None if seconds is None else seconds / part.count
    return [replace(whole, seconds=own), *without]
