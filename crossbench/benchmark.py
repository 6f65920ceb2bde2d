"""The main job, from the spec to the comparison."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from . import __version__, machine
from . import data as datasets
from .engine.rounds import Progress, measure
from .engine.worker import save_arrays
from .errors import SpecError
from .models import Model
from .plan import make_plan
from .results.comparison import SCHEMA, Comparison
from .results.records import Data, Settings
from .spec import Spec, make_spec


def run(
    frameworks: Iterable[str] | None = None,
    devices: Iterable[str] | None = None,
    *,
    model: str | Model = "lenet",
    data: str | Path = "auto",
    rounds: int = 3,
    epochs: int = 1,
    batch_size: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    timeout: float = 600,
    progress: Progress = lambda _: None,
) -> Comparison:
    """Train the same model in each framework on each device, prove the sameness, and compare.

    frameworks: names such as "torch", "jax", "flux"; None for all that are installed.
    devices: "cpu", "gpu"; None for the CPU, and the GPU where there is one.
    model: a name of the catalogue, or a Model.
    data: "auto" (CIFAR-10, or synthetic pictures where it cannot be had), "synthetic", or a
        directory of CIFAR-10's binary version.
    rounds: how often each cell trains again after its first round; epochs: of each round.
    batch_size: images a step; None for the model's own.
    threads: CPU threads of each framework; None for as many as this process may use.
    timeout: seconds that one answer of a worker (a start, a round) may take.
    progress: called with a few words as each piece of work begins.

    Raises SpecError or DataError, in a line, for what cannot be run at all. What goes wrong in
    one framework is in its CellResult, as a reason.
    """
    spec = make_spec(
        frameworks, devices, model, data, rounds, epochs, batch_size, seed, threads, timeout
    )
    return run_spec(spec, progress)


def run_spec(spec: Spec, progress: Progress) -> Comparison:
    cells = make_plan(spec)
    if not cells:
        raise SpecError(
            "no framework is installed: pip install 'crossbench[torch]', [jax] or [flux]"
        )
    progress(f"data: {spec.data}")
    dataset = datasets.load(spec.data, spec.seed)
    batches = len(dataset.train) // spec.batch_size
    if batches == 0:
        raise SpecError(
            f"batch_size is {spec.batch_size}, but there are only {len(dataset.train)} images"
        )
    settings = Settings(spec.rounds, spec.epochs, spec.seed, spec.threads, spec.timeout)
    with tempfile.TemporaryDirectory(prefix="crossbench-") as directory:
        save_arrays(dataset, Path(directory))
        described = Data(
            dataset.name,
            dataset.sha256(),
            len(dataset.train),
            len(dataset.test),
            spec.batch_size,
            batches,
            dataset.note,
        )
        del dataset  # the workers map the saved arrays
        results = measure(cells, spec.model, Path(directory), spec.batch_size, settings, progress)
    return Comparison(
        schema=SCHEMA,
        crossbench=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=spec.model.description(),
        data=described,
        machine=machine.describe(),
        settings=settings,
        results=results,
    )
