"""Runs a whole comparison, from the arguments to the results: `run` and `resume`."""

from __future__ import annotations

import signal
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from inspect import getdoc
from pathlib import Path
from typing import Unpack

from .arguments import Names, Options, sentences
from .engine.assignment import save_arrays
from .engine.environment import user_settings
from .engine.parts import described
from .engine.rounds import Measurement, Progress, Save
from .examples import load_examples
from .host.machine import describe, named_for_machine
from .host.run_directory import no_space_error, run_directory
from .host.signals import Stopped
from .inputs.errors import ResultsError
from .models import Model
from .models.parts import parts
from .plan import make_plan
from .results.cells import Cell, CellResult
from .results.comparison import SCHEMA, Comparison, load
from .results.file import Write, new_file, old_file
from .results.settings import Data, Settings
from .spec import find_model, make_spec
from .version import __version__


class Interrupted(Stopped):
    """Raised after Ctrl-C (on the command line also SIGTERM and SIGHUP), with all workers stopped.

    comparison: everything measured until then.
    """

    def __init__(self, comparison: Comparison, stop: KeyboardInterrupt) -> None:
        super().__init__(stop.number if isinstance(stop, Stopped) else signal.SIGINT)
        self.comparison = comparison


class Unsaved(ResultsError):
    """Raised at the end of a run whose results file could not be written.

    comparison: everything measured.
    """

    def __init__(self, reason: str, comparison: Comparison) -> None:
        super().__init__(reason)
        self.comparison = comparison


def run(
    frameworks: Names = None,
    devices: Names = None,
    *,
    json: str | Path | None = None,
    progress: Progress = lambda _: None,
    on_update: Save = lambda _: None,
    **options: Unpack[Options],
) -> Comparison:
    """Train one model in every framework on every device, check that all agree, and compare them.

    A cell is one variant of a framework on one device with one number of threads, one task and one
    batch size: a row of the table. In each round every cell starts a new process, and does a first
    epoch and then `epochs` steady ones. In one round the epochs are whole; in the others they take
    the first batches only, where an epoch is long.

    json: path of a new results file, written after every round; {machine} in it becomes the name of
        this machine, or of its host.
    progress: called with a short text as each piece of work begins.
    on_update: called with the comparison whenever something in it is finished, such as a round.

    The other arguments are listed below, as crossbench/arguments.py describes them; several names
    are given as "torch,jax" or as a list.

    Raises SpecError, DataError or ResultsError (each one line) if nothing can be run, Unsaved if
    the results file could not be written at the end, and Interrupted for Ctrl-C. A framework that
    fails does not raise: its CellResult gives the reason.
    """
    spec = make_spec(frameworks, devices, **options)
    cells = make_plan(spec)
    if isinstance(json, str | Path):
        json = named_for_machine(json, spec.machine)
    settings = user_settings((cell.framework, cell.variant) for cell in cells)
    with nullcontext() if json is None else new_file(json) as write, run_directory() as directory:
        progress(f"data: {spec.settings.data}")
        limits = (spec.batches, spec.examples)
        model, prepared = _prepare(spec.model, spec.settings, spec.batch_sizes, limits, directory)
        comparison = Comparison(
            schema=SCHEMA,
            crossbench=__version__,
            created=_now(),
            model=model.description(),
            data=prepared,
            machine=describe(spec.machine, settings),
            settings=spec.settings,
            results=[_new_result(cell) for cell in cells],
            parts=described(parts(model)) if spec.settings.layers else [],
        )
        return _measure(comparison, model, directory, write, progress, on_update)


run.__doc__ = f"{getdoc(run)}\n\n{sentences()}"


def resume(
    json: str | Path,
    *,
    model: str | Model | None = None,
    progress: Progress = lambda _: None,
    on_update: Save = lambda _: None,
) -> Comparison:
    """Continue an interrupted run from its results file; finished rounds are not repeated.

    json: the results file; new rounds are added to it.
    model: needed only if the run was given a Model: the same one.
    progress, on_update: as those of `run`.

    Raises SpecError if the model cannot be used, and ResultsError if the file cannot be read, or
    if crossbench's version, the model, the machine or the data differ from the file's.
    """
    with old_file(json) as write, run_directory() as directory:
        comparison = load(json)
        requested = find_model(
            comparison.settings.model if model is None else model, comparison.input_shape
        )
        limits = (comparison.data.most_batches, comparison.data.most_examples)
        cells = [result.cell for result in comparison.results]
        sizes = {cell.batch_size for cell in cells}
        settings = user_settings((cell.framework, cell.variant) for cell in cells)
        fitted, data = _prepare(requested, comparison.settings, sizes, limits, directory)
        for what, there, here in (
            ("crossbench version", comparison.crossbench, __version__),
            ("model", comparison.model, fitted.description()),
            ("machine", comparison.machine, describe(comparison.machine.label, settings)),
            ("data checksum", comparison.data.sha256, data.sha256),
        ):
            if there != here:
                values = f" ({there} there, {here} here)" if isinstance(there, str) else ""
                raise ResultsError(f"cannot resume {json}: its {what} differs{values}")
        comparison.resumed.append(_now())
        return _measure(comparison, fitted, directory, write, progress, on_update)


def _measure(
    comparison: Comparison,
    model: Model,
    data: Path,
    write: Write | None,
    progress: Progress,
    on_update: Save,
) -> Comparison:
    """Measure all pending cells, and write the results file after each finished piece of work."""
    unsaved: ResultsError | None = None

    def save(comparison: Comparison) -> None:
        if write is not None:
            write(comparison.encode())

    def save_if_possible(comparison: Comparison) -> None:
        """Write the results; if that fails, report it once and try again after the next round."""
        nonlocal unsaved
        try:
            save(comparison)
            unsaved = None
        except ResultsError as error:
            if unsaved is None:
                progress(f"{error}; the run goes on")
            unsaved = error
        on_update(comparison)

    save(comparison)  # if the file cannot be written, fail before anything is measured
    try:
        Measurement(comparison, model, data, progress, save_if_possible).run()
    except KeyboardInterrupt as stop:
        raise Interrupted(comparison, stop) from None
    if unsaved is not None:
        raise Unsaved(str(unsaved), comparison)
    return comparison


def _prepare(
    model: Model,
    settings: Settings,
    batch_sizes: Collection[int],
    limits: tuple[int | None, int | None],
    directory: Path,
) -> tuple[Model, Data]:
    """Load the data, write it to files that the workers map, and return the model that fits it.

    limits: the most batches and the most examples per epoch. The arrays are not kept in this
    process.
    """
    fitted, dataset, data = load_examples(model, settings, batch_sizes, limits)
    try:
        save_arrays(dataset, directory)
    except OSError as error:
        raise no_space_error(directory.parent, error) from None
    # the checksum is that of the examples that are used
    return fitted, replace(data, sha256=dataset.sha256())


def _new_result(cell: Cell) -> CellResult:
    if cell.unavailable:
        return CellResult(cell, "unavailable", cell.unavailable)
    return CellResult(cell)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
