"""The order of the work: parity for every cell, then rounds of interleaved epochs.

One worker trains at a time. A worker that fails takes its own cell down, and no other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from .. import adapters
from ..gpus import find_gpus
from ..machine import usable_cpus
from ..models import Model
from ..results.comparison import Comparison
from ..results.doubts import difference
from ..results.records import CellResult, Epoch, Parity, Reference, Trained, Usage
from ..results.statistics import LEAST
from ..run_directory import no_room
from ..workload import Adapter, Job
from . import evidence, parity
from .checked import other_names
from .process import WorkerFailure, WorkerGroup, WorkerProcess
from .sampler import Sampler
from .usage import Clock
from .worker import Started, Task, epoch_batches

INSTALL_SECONDS = 3600.0
LARGE = 10_000_000  # parameters

Progress = Callable[[str], None]
"""Told what begins, in a few words."""

Keep = Callable[[Comparison], None]
"""Given the comparison whenever something in it is finished."""


def measure(
    comparison: Comparison, model: Model, data: Path, progress: Progress, keep: Keep
) -> None:
    """Prove and time every cell that is pending, from where it is; data is where save_arrays
    wrote it.
    """
    Measurement(comparison, model, data, progress, keep).run()


class Measurement:
    """A comparison on its way. Every round of a cell has a process of its own: where memory and
    threads happen to lie makes one process some per cent faster than another for as long as it
    lives, and rounds of one process alone would take that for a difference. Within a round the
    cells' epochs take turns, so that a drift of the machine's speed hits all alike.
    """

    def __init__(
        self,
        comparison: Comparison,
        model: Model,
        data: Path,
        progress: Progress,
        keep: Keep,
    ) -> None:
        self.comparison, self.settings = comparison, comparison.settings
        self.progress, self.keep = progress, keep
        self.model, self.data = model, data
        self.tasks = {
            result.name: Task(
                result.cell.framework,
                Job(model, result.cell.device_type, result.cell.threads, "float32"),
                data,
                comparison.data.batch_size,
                comparison.data.batches,
                self.settings.seed,
                result.cell.gpu_index if result.cell.on_gpu else None,
            )
            for result in comparison.results
        }

    def run(self) -> None:
        """What was done before an interruption is not done again."""
        self.keep(self.comparison)
        self.install_all()
        self.prove_all()
        for number in self.numbers():
            left = [result for result in self.pending() if not result.has_round(number)]
            if left:
                self.round(number, left)
        if self.settings.target_accuracy is not None:
            left = [result for result in self.pending() if not result.to_accuracy]
            self.each(left, "on the way to the target accuracy", self.train_to_accuracy)
        if self.settings.trace_memory:
            left = [result for result in self.pending() if result.allocated is None]
            self.each(left, "tracing its memory", self.trace)
        for result in self.pending():
            result.status = "ran"
        self.keep(self.comparison)

    def pending(self) -> list[CellResult]:
        return [result for result in self.comparison.results if result.status == "pending"]

    def each(
        self, results: list[CellResult], where: str, work: Callable[[CellResult], None]
    ) -> None:
        for result in results:
            with _failing(where, result):
                work(result)
            self.keep(self.comparison)

    def numbers(self) -> Iterator[int]:
        """Of the rounds: as many as asked for, or until they are precise, or time is up."""
        settings, start = self.settings, time.monotonic()
        for number in count(1):
            if settings.rounds is not None and number > settings.rounds:
                return
            if settings.rounds is None and number > LEAST:
                late = time.monotonic() - start > settings.max_seconds
                if late or self.comparison.precise:
                    return
            yield number

    def install_all(self) -> None:
        """Install what is missing, one after the other, before any proof begins: what one cell
        installs may change the versions that another one gets.
        """
        for result in self.pending():
            adapter = adapters.get(result.cell.framework)
            if getattr(type(adapter), "to_install", None) is Adapter.to_install:
                continue  # it has nothing to install: no process is needed to ask it
            with _failing("while installing", result):
                with self.worker(result) as worker:
                    what = worker.ask("to_install")
                if what:
                    self.progress(f"{result.name}: {what}")
                    task = self.tasks[result.name]
                    with WorkerProcess(task, INSTALL_SECONDS, show=True) as installer:
                        installer.ask("install")

    def prove_all(self) -> None:
        """Nothing is timed meanwhile."""
        unproved = [result for result in self.pending() if result.parity is None]
        if not self.pending() or (not unproved and self.comparison.reference):
            return
        self.progress("parity")
        pool = ThreadPoolExecutor(3 + min(len(unproved), self.at_a_time()))  # the reference takes 3
        group = WorkerGroup()
        try:
            expected = pool.submit(self.reference)
            losses, single = (
                pool.submit(self.reference_losses, dtype) for dtype in ("float64", "float32")
            )
            proofs = {pool.submit(self.prove, r, expected, group): r for r in unproved}
            for proof in as_completed(proofs):
                with _failing("in parity", proofs[proof]):
                    proofs[proof].parity = proof.result()
                self.keep(self.comparison)
            by_chance = expected.result().by_chance
            self.comparison.reference = Reference(losses.result(), single.result(), by_chance)
            self.keep(self.comparison)
        finally:  # after Ctrl-C nothing is waited for
            pool.shutdown(wait=False, cancel_futures=True)
            group.kill()

    def reference(self) -> parity.Expected:
        try:
            return parity.reference(self.model, self.data / "expected")
        except OSError as error:
            raise no_room(self.data.parent, error) from None

    def prove(
        self, result: CellResult, expected: Future[parity.Expected], group: WorkerGroup
    ) -> Parity:
        with group.start(self.tasks[result.name], self.settings.timeout) as worker:
            return worker.ask("parity", expected.result())

    def reference_losses(self, dtype: str) -> dict[str, list[float]]:
        """Return the losses that the first steps of the timed epochs must have."""
        task = next(iter(self.tasks.values()))
        weights = self.model.initial_weights(task.seed)
        return evidence.reference_losses(self.model, weights, epoch_batches(task), dtype)

    def at_a_time(self) -> int:
        """Three workers, or as many as there are CPUs: each builds and compiles the model twice.
        Of a large model one: in float64, with its gradients and the optimizer's state, each takes
        some 10 GB.
        """
        large = parity.proof_model(self.model).parameter_count > LARGE
        return 1 if large else max(3, len(usable_cpus()))

    def round(self, number: int, results: list[CellResult]) -> None:
        """A first epoch of each in turn, then the steady ones, interleaved; kept as a whole."""
        rounds = self.settings.rounds or "as many as needed"
        shuffle = random.Random(f"{self.settings.seed} {number}").shuffle
        reference = self.comparison.reference
        assert reference is not None  # from prove_all
        with ExitStack() as stack:
            cells = [RoundOfCell(result, number, reference) for result in results]
            for epoch in range(1 + self.settings.epochs):
                shuffle(cells)
                for cell in cells:
                    if cell.failed:
                        continue
                    what = f"epoch {epoch} of {self.settings.epochs}" if epoch else "first epoch"
                    self.progress(f"{cell.result.name}: round {number} of {rounds}, {what}")
                    with _failing(f"in round {number}", cell.result):
                        if epoch == 0:
                            cell.start(stack.enter_context(self.worker(cell.result)))
                        cell.train(epoch)
            for cell in cells:
                with _failing(f"in round {number}", cell.result):
                    if not cell.failed:
                        cell.finish()
            self.keep(self.comparison)
            for cell in cells:
                if not cell.failed and not (cell.result.peak or cell.result.no_peak):
                    self.progress(f"{cell.result.name}: matrix product and copy")
                    cell.measure_peak()
                    self.keep(self.comparison)

    def train_to_accuracy(self, result: CellResult) -> None:
        """Kept as a whole: what was interrupted starts anew."""
        target, epochs = self.settings.target_accuracy or 1.0, list[Trained]()
        with self.worker(result) as worker:
            worker.ask("start")
            while sum(epoch.wall_seconds for epoch in epochs) < self.settings.max_seconds:
                what = f"epoch {len(epochs) + 1} to an accuracy of {target:.0%}"
                self.progress(f"{result.name}: {what}")
                epochs.append(worker.ask("train_on", len(epochs)))
                if epochs[-1].accuracy >= target:
                    break
        result.to_accuracy = epochs

    def trace(self, result: CellResult) -> None:
        """In a process of its own: tracing slows down what comes after it."""
        self.progress(f"{result.name}: what an epoch allocates")
        with self.worker(result) as worker:
            worker.ask("start")
            result.allocated = worker.ask("allocated")

    def worker(self, result: CellResult) -> WorkerProcess:
        return WorkerProcess(self.tasks[result.name], self.settings.timeout)


class RoundOfCell:
    """One cell in one round: its process, and what is to be kept when the round is done."""

    def __init__(self, result: CellResult, number: int, reference: Reference) -> None:
        self.result, self.number, self.reference = result, number, reference
        self.epochs: list[Epoch] = []
        self.usage: list[Usage] = []
        cell = result.cell
        self.gpu = find_gpus().handle(cell.gpu_index) if cell.on_gpu else None

    @property
    def failed(self) -> bool:
        return self.result.status != "pending"

    def start(self, worker: WorkerProcess) -> None:
        clock = Clock.start()
        self.worker = worker
        started: Started = worker.ask("start")
        if not self.result.epochs:
            self.result.start_seconds, _ = clock.seconds()
            self.result.details = started.details
            self.result.threads_reported = started.threads
        if started.details != self.result.details:
            raise WorkerFailure("its versions are others than in the rounds before")

    def train(self, epoch: int) -> None:
        with Sampler(self.worker.process.pid, self.gpu) as sampler:
            done: Epoch = self.worker.ask("epoch", self.number, epoch)
        for before in (self.result.epochs or self.epochs)[:1]:
            if wrong := other_names(before.figures, done.figures):
                raise WorkerFailure(wrong)
        self.epochs.append(done)
        if epoch > 0 and (usage := sampler.usage(done)):
            self.usage.append(usage)

    def finish(self) -> None:
        result, trail = self.result, self.worker.ask("trail")
        if not result.epochs:
            result.test_accuracy = self.worker.ask("test_accuracy")
            result.changes = trail.changes
            if self.reference.masked:
                result.masked_losses = self.worker.ask("masked_losses")
        steps = len(self.epochs[0].losses)
        if other := difference(self.reference, steps, trail.changes, result.changes):
            raise WorkerFailure(f"{other} than in the first round")
        result.epochs += self.epochs
        result.usage += self.usage
        if trail.peak_memory is not None:
            result.peak_memory = max(result.peak_memory or 0, trail.peak_memory)
        result.cpus_allowed = trail.cpus_allowed

    def measure_peak(self) -> None:
        """After the round was kept: where there is no memory for it, only the peak is missing."""
        try:
            self.result.peak = self.worker.ask("peak")
        except WorkerFailure as failure:
            self.result.no_peak = str(failure)


@contextmanager
def _failing(where: str, result: CellResult) -> Iterator[None]:
    try:
        yield
    except WorkerFailure as failure:
        if failure.unavailable:
            result.status, result.reason = "unavailable", str(failure)
        else:
            result.status, result.reason = "failed", f"{failure} ({where})"
        result.traceback = failure.traceback
