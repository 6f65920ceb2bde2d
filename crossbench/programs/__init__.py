"""Writes the programs of rows, each in its framework alone: `script`.

A program trains the model of a row, or times a part of its training step, without crossbench.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import models
from ..arguments import Names, Numbers
from ..examples import load_examples
from ..inputs.checks import shown
from ..inputs.errors import ProgramError, ResultsError, SpecError
from ..models import Model
from ..plan import make_plan
from ..results.comparison import Comparison, load, without_data
from ..spec import find_model, make_spec
from . import of_models, of_parts
from .choice import OF_MODEL, installed
from .of_models import Examples
from .program import Program, write

__all__ = ["Program", "of_comparison", "script"]

OF_LAYERS = ("model", "input", "frameworks", "batch_size")
"""The arguments that a program of a layer depends on: its examples are random."""


def script(
    results: str | Path | None = None,
    *,
    layer: str | None = None,
    ran: bool = False,
    model: str | Model | None = None,
    input: Numbers = None,  # noqa: A002
    frameworks: Names = None,
    variants: Names = None,
    devices: Names = None,
    data: str | Path | None = None,
    batch_size: Numbers = None,
    batches: int | None = None,
    examples: int | None = None,
    threads: Numbers = None,
    seed: int | None = None,
    out: str | Path = ".",
    force: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Program]:
    """Write the programs of rows, each in its framework alone, as the framework's users write it.

    A program trains the model as the row does, and prints the seconds of each epoch with its
    losses. It reads the row's initial weights from a file beside it: so its losses are the row's.
    With `layer` there are two programs, of the layers that the run times with that part of a
    training step and without it; what the part takes is the difference.

    results: results file of a run, which gives everything but the layer: a program for each row
        that trains.
    layer: name of a layer in the model, such as conv1; loss or optimizer. "flatten1, dense1" are
        timed together. "slowest", for the results of a run with layers: for each row that is
        slower than the fastest the part that explains most of the difference, and the same for the
        fastest; a row alone gets its longest part.
    ran: write what the rows ran, as the results file keeps it, whatever is installed here: without
        data, initial weights and loop.
    model: a name that `models` lists, FILE.py:NAME, or a Model; lenet by default. Beside results it
        is needed only if the run was given a Model: the same one.
    frameworks: names such as "torch,jax:scan"; by default all installed ones that have programs.
    input: shape of one example, for a model of PyTorch in FILE.py.
    variants, devices, data, batch_size, batches, examples, threads, seed: those of `run`.
    out: folder of the new files; it is made where it does not exist.
    force: overwrite files that exist.
    progress: called with a line for each row that gets no program.

    Raises SpecError for wrong arguments, DataError for unusable data, ResultsError for an unusable
    results file, and ProgramError if a file exists already or cannot be written.
    """
    asked = _named(
        input=input,
        frameworks=frameworks,
        variants=variants,
        devices=devices,
        data=data,
        batch_size=batch_size,
        batches=batches,
        examples=examples,
        threads=threads,
        seed=seed,
    )
    if ran:
        found = _that_ran(results, asked | _named(model=model, layer=layer), progress)
    elif results is None:
        found = _of_arguments(asked | _named(model=model), layer, progress)
    else:
        found = _of_results(results, asked, model, layer, progress)
    return write(found, _directory(out), force)


def _named(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _that_ran(
    results: str | Path | None, asked: dict[str, Any], progress: Callable[[str], None]
) -> list[Program]:
    """Return what the rows of a results file ran."""
    if results is None:
        raise SpecError("what rows ran is in a results file: name it")
    if asked:
        raise SpecError(f"{results} gives what its rows ran: leave out {', '.join(asked)}")
    comparison = load(results).frozen()
    rows = [row for row in comparison.results if row.source_code]
    if not rows:
        raise ResultsError(f"{results} keeps no source code of its rows")
    for row in comparison.results:
        if not row.source_code:
            progress(f"{results} keeps no source code of {row.cell.name}")
    return [of_models.that_ran(row, comparison) for row in rows]


def _of_arguments(
    asked: dict[str, Any], layer: str | None, progress: Callable[[str], None]
) -> list[Program]:
    """Return the programs of what the arguments name."""
    if layer == of_parts.SLOWEST:
        raise SpecError(f"layer {layer} needs the results file of a run with layers: name it")
    if layer is not None:
        if others := [name for name in asked if name not in OF_LAYERS]:
            raise SpecError(
                f"a program of a layer makes its own input, on the CPU: leave out {others[0]}"
            )
        return of_parts.of_arguments(make_spec(**asked), layer)
    if "frameworks" not in asked:
        asked = asked | {"frameworks": installed(OF_MODEL)}
    spec = make_spec(**asked)
    limits = (spec.batches, spec.examples)
    fitted, dataset, described = load_examples(spec.model, spec.settings, spec.batch_sizes, limits)
    examples = Examples(fitted, dataset, described, spec.settings)
    found = of_models.of_cells(make_plan(spec), examples, progress)
    if described.note:
        progress(described.note)
    return found


def _of_results(
    results: str | Path,
    asked: dict[str, Any],
    model: str | Model | None,
    layer: str | None,
    progress: Callable[[str], None],
) -> list[Program]:
    """Return the programs of the rows of a results file."""
    if asked:
        raise SpecError(f"{results} gives {', '.join(asked)}: leave it out, or the file")
    comparison = load(results).frozen()
    if layer is None:
        return _of_rows(comparison, model, results, progress)
    fitted = _model_of(comparison, model, results)
    return of_parts.of_results(comparison, fitted, layer, results, progress)


def _of_rows(
    comparison: Comparison,
    model: str | Model | None,
    results: str | Path,
    progress: Callable[[str], None],
) -> list[Program]:
    """Return the program of each row of a results file."""
    settings, data = comparison.settings, comparison.data
    requested = find_model(settings.model if model is None else model, comparison.input_shape)
    limits = (data.most_batches, data.most_examples)
    cells = [row.cell for row in comparison.results if row.status != "unavailable"]
    sizes = {cell.batch_size for cell in cells} or {1}
    fitted, dataset, described = load_examples(requested, settings, sizes, limits)
    _require_same(fitted, comparison, results)
    if (described.name, dataset.sha256()) != (data.name, data.sha256):
        raise ResultsError(
            f"cannot write programs for {results}: its data, {data.name}, is not what is here"
        )
    examples = Examples(fitted, dataset, described, settings)
    return of_models.of_cells(cells, examples, progress)


def of_comparison(comparison: Comparison) -> list[Program]:
    """Return the program of each row of a comparison, without the files that they read.

    It loads no data and no file that the comparison names: a model that is not of the catalogue has
    no programs, and of the data's path the last word is kept.
    """
    settings, data = comparison.settings, comparison.data
    if settings.model not in models.names():
        return []
    cells = [row.cell for row in comparison.results if row.status != "unavailable"]
    try:
        model = _model_of(comparison, None, settings.model)
        examples = Examples(model, None, data, settings)
        return of_models.of_cells(cells, examples, lambda _: None)
    except (SpecError, ResultsError):  # another version's model, or no row has a program
        return []


def _model_of(comparison: Comparison, model: str | Model | None, results: str | Path) -> Model:
    """Return the model of a results file, with the vocabulary of the run's data.

    Raises SpecError where it does not load, and ResultsError where it is another one here.
    """
    named = comparison.settings.model if model is None else model
    found = find_model(named, comparison.input_shape)
    match comparison.model:
        case {"layers": [{"vocabulary": int(vocabulary)}, *_]}:
            found = found.with_vocabulary(vocabulary)
        case _:
            found = found.with_vocabulary(None)
    _require_same(found, comparison, results)
    return found


def _require_same(found: Model, comparison: Comparison, results: str | Path) -> None:
    """Raise ResultsError where a model is not that of a results file."""
    if without_data(found.description()) != without_data(comparison.model):
        raise ResultsError(
            f"cannot write programs for {results}: its model differs from {found.name} here"
        )


def _directory(out: str | Path) -> Path:
    try:
        return Path(out)
    except TypeError:
        raise ProgramError(f"a folder is named by its path, not {shown(out)}") from None
