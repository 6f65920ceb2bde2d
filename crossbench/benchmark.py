"""The main job, from the spec to the comparison."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from . import __version__, machine
from . import data as datasets
from .engine.rounds import Progress, measure
from .engine.worker import save_arrays
from .errors import ResultsError, SpecError
from .memory import check_memory
from .models import Model
from .plan import make_plan, reasons
from .results.comparison import SCHEMA, Comparison, load
from .results.file import Write, new_file, old_file
from .results.records import Cell, CellResult, Data, Settings
from .run_directory import no_room, run_directory
from .signals import Stopped
from .spec import (
    AUTO,
    EPOCHS,
    MAX_SECONDS,
    MODEL,
    PRECISION,
    ROUNDS,
    SEED,
    TIMEOUT,
    make_spec,
    model_of,
)


class Interrupted(Stopped):
    """Ctrl-C, or on the command line another signal, after all workers were ended; comparison holds
    what was measured until then.
    """

    def __init__(self, comparison: Comparison, stop: KeyboardInterrupt) -> None:
        super().__init__(stop.number if isinstance(stop, Stopped) else signal.SIGINT)
        self.comparison = comparison


class Unsaved(ResultsError):
    """The results file could not be written at the end; comparison holds everything measured."""

    def __init__(self, reason: str, comparison: Comparison) -> None:
        super().__init__(reason)
        self.comparison = comparison


def run(
    frameworks: Iterable[str] | None = None,
    devices: Iterable[str] | None = None,
    *,
    model: str | Model = MODEL,
    data: str | Path = AUTO,
    rounds: int | str = ROUNDS,
    precision: float = PRECISION,
    max_seconds: float = MAX_SECONDS,
    epochs: int = EPOCHS,
    batch_size: int | None = None,
    batches: int | None = None,
    seed: int = SEED,
    threads: int | Iterable[int] | None = None,
    baseline: str | None = None,
    price: float | str | Mapping[str, float] | None = None,
    target_accuracy: float | None = None,
    trace_memory: bool = False,
    timeout: float = TIMEOUT,
    json: str | Path | None = None,
    progress: Progress = lambda _: None,
) -> Comparison:
    """Train the same model in each framework on each device, prove the sameness, and compare.

    frameworks: names such as "torch", "jax", "flux"; None for all that are installed.
    devices: "cpu", "gpu", or "gpu:1" for the second of several; None for the CPU, and the GPU
        where there is one.
    model: a name of the catalogue, "FILE.py:NAME", or a Model.
    data: "auto" (the data that the model was published with, or synthetic where it cannot be had),
        "synthetic", or a directory or file of it in its published form.
    rounds: how often each cell trains a first and a steady epoch in a new process; "auto": until
        the interval of every ratio is narrower than `precision` (relative), or `max_seconds` are
        used up.
    epochs: steady ones of each round, which take turns with the other cells'.
    batch_size: examples a step; None for the model's own.
    batches: cut an epoch, and the test after it, to the first so many; None for the model's own,
        mostly all.
    threads: CPU threads of each framework, or several numbers for a cell each; None for as many
        as this process may use.
    baseline: the framework that the others are compared with; None for the fastest.
    price: of an hour, of any device or by device; see crossbench/prices.py for the words.
    target_accuracy: a fraction; after the rounds, each cell trains on from the initial weights
        until the test examples reach it, or `max_seconds` of training are used up.
    trace_memory: after the rounds, trace what an epoch allocates, in processes of their own.
    timeout: seconds that one answer of a worker (a start, a round) may take.
    json: a new file that holds everything measured, from the first finished round on.
    progress: called with a few words as each piece of work begins.

    Raises SpecError, DataError or ResultsError, in a line, for what cannot be run at all, Unsaved
    where the file could not be written to the end, and Interrupted for Ctrl-C. What goes wrong in
    one framework is in its CellResult, as a reason.
    """
    spec = make_spec(
        frameworks,
        devices,
        model=model,
        data=data,
        rounds=rounds,
        precision=precision,
        max_seconds=max_seconds,
        epochs=epochs,
        batch_size=batch_size,
        batches=batches,
        seed=seed,
        threads=threads,
        baseline=baseline,
        price=price,
        target_accuracy=target_accuracy,
        trace_memory=trace_memory,
        timeout=timeout,
    )
    cells = make_plan(spec)
    if not cells:
        raise SpecError(f"no framework is installed: {'; '.join(reasons())}")
    with nullcontext() if json is None else new_file(json) as write, run_directory() as directory:
        progress(f"data: {spec.settings.data}")
        model, prepared = _prepare(
            spec.model, spec.settings, spec.batch_size, spec.batches, directory
        )
        comparison = Comparison(
            schema=SCHEMA,
            crossbench=__version__,
            created=_now(),
            model=model.description(),
            data=prepared,
            machine=machine.describe(),
            settings=spec.settings,
            results=[_result(cell) for cell in cells],
        )
        return _measure(comparison, model, directory, write, progress)


def resume(
    json: str | Path, *, model: str | Model | None = None, progress: Progress = lambda _: None
) -> Comparison:
    """Go on with an interrupted run, from its file and into it: nothing finished is done again.

    model: the one it was run with, where it was given as a Model.

    Raises SpecError for what is no model, and ResultsError where the file is none, or is another
    crossbench's, machine's or data's.
    """
    with old_file(json) as write, run_directory() as directory:
        comparison = load(json)
        asked = model_of(comparison.settings.model if model is None else model)
        before = comparison.data
        fitted, data = _prepare(
            asked, comparison.settings, before.batch_size, before.batches, directory
        )
        for what, here, there in (
            ("crossbench", __version__, comparison.crossbench),
            ("model", fitted.description(), comparison.model),
            ("machine", machine.describe(), comparison.machine),
            ("data", data.sha256, before.sha256),
        ):
            if here != there:
                raise ResultsError(f"{json} cannot be gone on with: its {what} is another one")
        comparison.resumed.append(_now())
        return _measure(comparison, fitted, directory, write, progress)


def _measure(
    comparison: Comparison,
    model: Model,
    data: Path,
    write: Write | None,
    progress: Progress,
) -> Comparison:
    unsaved: ResultsError | None = None

    def save(comparison: Comparison) -> None:
        if write is not None:
            write(comparison.encode())

    def keep(comparison: Comparison) -> None:
        """Go on without the file, and try again after the next round: it may fit then."""
        nonlocal unsaved
        try:
            save(comparison)
            unsaved = None
        except ResultsError as error:
            if unsaved is None:
                progress(f"{error}; the run goes on")
            unsaved = error

    save(comparison)  # a file that cannot be written stops the run before anything is measured
    try:
        measure(comparison, model, data, progress, keep)
    except KeyboardInterrupt as stop:
        raise Interrupted(comparison, stop) from None
    if unsaved is not None:
        raise Unsaved(str(unsaved), comparison)
    return comparison


def _prepare(
    model: Model, settings: Settings, batch_size: int, limit: int | None, directory: Path
) -> tuple[Model, Data]:
    """Load the data, write it where the workers map it, and let go of it. The model is the one for
    its vocabulary; limit: of an epoch's batches.
    """
    dataset = datasets.load(model.data, settings.data, settings.seed)
    fitted = _fitted(model, dataset)
    there = len(dataset.train) // batch_size
    if there == 0:
        raise SpecError(
            f"batch_size is {batch_size}, but there are only {len(dataset.train)} examples"
        )
    batches = min(there, limit or there)
    if batches < there:
        dataset = replace(dataset, test=dataset.test.first(batches * batch_size))
    try:
        save_arrays(dataset, directory)
    except OSError as error:
        raise no_room(directory.parent, error) from None
    data = Data(
        dataset.name,
        dataset.sha256(),
        len(dataset.train),
        len(dataset.test),
        batch_size,
        batches,
        batches < there,
        dataset.note,
    )
    return fitted, data


def _fitted(model: Model, dataset: datasets.Dataset) -> Model:
    """The model for the data's vocabulary; SpecError where it cannot be trained on that data."""
    model, train = model.fitted(dataset.vocabulary), dataset.train
    check_memory(model)
    numbers, labels = dataset.vocabulary or 0, 1 + int(train.labels.max())
    if model.input_shape != train.inputs.shape[1:]:
        misfit = f"examples of shape {model.input_shape}, not {train.inputs.shape[1:]}"
    elif numbers > (model.vocabulary or 0):
        misfit = f"a vocabulary of {model.vocabulary or 0:,}, not {numbers:,}"
    elif labels > model.classes:
        misfit = f"{model.classes:,} labels, not {labels:,}"
    else:
        return model
    raise SpecError(
        f"the model {model.name} is for {misfit}, as {dataset.name} has: name the model's own "
        "data, as in Model(..., data=MNIST())"
    )


def _result(cell: Cell) -> CellResult:
    if cell.unavailable:
        return CellResult(cell, "unavailable", cell.unavailable)
    return CellResult(cell)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
