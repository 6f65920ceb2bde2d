"""Prove small models in each cell, for `doctor --check`.

It does so in processes like those of a run, but nothing is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from .. import models
from ..inputs.names import FLOAT32
from ..models import Model
from ..results.cells import Cell
from ..results.parity import Parity, worst
from ..workload import Job
from . import parity
from .assignment import Assignment
from .process import WorkerFailure, install, to_install
from .proofs import Proofs, Start, prove_model

PICTURES = Model(
    name="pictures",
    input_shape=(3, 16, 16),
    layers=(
        models.Conv(8, kernel=(3, 3)),
        models.ReLU(),
        models.MaxPool((2, 2), stride=(2, 2)),
        models.Flatten(),
        models.Dropout(0.5),
        models.Dense(4),
    ),
    loss=models.SoftmaxCrossEntropy(),
    optimizer=models.SGD(learning_rate=0.01, momentum=0.9),
    batch_size=64,
    source="crossbench's checkup",
)
TOKENS = Model(
    name="tokens",
    input_shape=(8,),
    layers=(models.Embedding(32, 16), models.MultiHeadAttention(2, causal=True), models.Dense(32)),
    loss=models.SoftmaxCrossEntropy(),
    optimizer=models.Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
    batch_size=64,
    source="crossbench's checkup",
)
MODELS = (PICTURES, TOKENS)


@dataclass
class Verdict:
    """Hold what the proofs of a cell found.

    parities: by the model's name. unsupported: what the adapter does not support, by the name of
    the model that has it. failure: why the cell could not be proved.
    """

    cell: Cell
    parities: dict[str, Parity] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    failure: WorkerFailure | None = None

    @property
    def problem(self) -> str | None:
        """Return what is wrong, in a line; None where all models agree."""
        if self.failure is not None:
            return str(self.failure)
        for model, proved in self.parities.items():
            if proved.disagreement:
                return f"{proved.disagreement}, in the model {model}"
        missing = [f"the model {model} ({what})" for model, what in self.unsupported.items()]
        return " and ".join(missing) or None

    @property
    def status(self) -> str:
        """Return "agrees", "does not agree", "does not support", "failed" or "cannot run"."""
        if self.failure is not None:
            return "cannot run" if self.failure.unavailable else "failed"
        if any(proved.disagreement for proved in self.parities.values()):
            return "does not agree"
        return "does not support" if self.unsupported else "agrees"

    @property
    def is_wrong(self) -> bool:
        """Return whether a user must do something: nobody asked for what is not installed."""
        left_out = self.cell.unavailable is not None and not self.cell.named
        return self.status not in ("agrees", "does not support") and not left_out

    def deviation(self, precision: str) -> float | None:
        """Return the largest deviation of all tensors in "float64" or "float32"; None where one is
        not finite.
        """
        values = [worst(getattr(proved, precision))[1] for proved in self.parities.values()]
        return None if None in values else max(value for value in values if value is not None)


def check_cells(
    cells: Sequence[Cell], data: Path, timeout: float, progress: Callable[[str], None]
) -> list[Verdict]:
    """Install what is missing, and prove MODELS in each available cell, several at a time.

    data: an empty directory. timeout: seconds for each answer of a worker process. progress: called
    with what begins or is done, in a few words.
    """
    verdicts = [Verdict(cell) for cell in cells]
    for verdict in verdicts:
        with _recorded(verdict):
            if verdict.cell.unavailable:
                raise WorkerFailure(verdict.cell.unavailable, unavailable=True)
            install(verdict.cell.name, _assignment(verdict.cell, data), timeout, progress)
    if left := [verdict for verdict in verdicts if not verdict.failure]:
        progress("parity")
        # the BLAS threads of each of the reference's threads would wait for one another busily
        with threadpool_limits(1, user_api="blas"):
            _prove_all(left, data, timeout, progress)
    return verdicts


def missing_packages(
    framework: str, variant: str, device: str, data: Path, timeout: float
) -> str | None:
    """Return a line that says what the first run would install; None for nothing.

    device: "cpu" or "gpu". Raises WorkerFailure where it must not be installed, or is not known.
    """
    job, gpu = Job(PICTURES, device, 1, "float32", variant), 0 if device == "gpu" else None
    return to_install(Assignment(framework, job, data, 1, 0, parity.SEED, gpu), timeout)


def _prove_all(
    verdicts: list[Verdict], data: Path, timeout: float, progress: Callable[[str], None]
) -> None:
    """Fill in the verdicts by proofs in a process for each."""
    with Proofs(data, timeout) as proofs:
        expected = [
            proofs.expect(parity.compute_reference, model, data / f"expected {model.name}")
            for model in MODELS
        ]
        verdict_of = {
            proofs.prove(_prove_models, _assignment(verdict.cell, data), *expected): verdict
            for verdict in verdicts
        }
        for done, proof in enumerate(as_completed(verdict_of), 1):
            verdict = verdict_of[proof]
            with _recorded(verdict):
                verdict.parities, verdict.unsupported = proof.result()
            progress(f"{done} of {len(verdict_of)} proofs: {verdict.cell.name}")


def _prove_models(
    start: Start, assignment: Assignment, *expected: Future[Any]
) -> tuple[dict[str, Parity], dict[str, str]]:
    """Return the proofs of MODELS by name, and what the adapter does not support of the others."""
    parities, unsupported = dict[str, Parity](), dict[str, str]()
    with start(assignment) as worker:
        for model, tensors in zip(MODELS, expected, strict=True):
            try:
                parities[model.name] = prove_model(worker, model, tensors)
            except WorkerFailure as failure:
                if not failure.unsupported:
                    raise
                unsupported[model.name] = str(failure).partition(": ")[2]
    return parities, unsupported


def _assignment(cell: Cell, data: Path) -> Assignment:
    """Return what the cell's worker carries out: it needs no data, since it times nothing."""
    job = Job(PICTURES, cell.device_type, cell.threads, FLOAT32, cell.variant, cell.compute)
    gpu = cell.gpu_index if cell.on_gpu else None
    return Assignment(cell.framework, job, data, PICTURES.batch_size, 0, parity.SEED, gpu)


@contextmanager
def _recorded(verdict: Verdict) -> Iterator[None]:
    """Record a WorkerFailure in the verdict."""
    try:
        yield
    except WorkerFailure as failure:
        verdict.failure = failure
