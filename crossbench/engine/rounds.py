"""Run the measurement in order: parity for every cell, then rounds of interleaved epochs.

One worker trains at a time. If a worker fails, its cell fails, and no other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from ..host.gpus import find_gpus
from ..host.machine import usable_cpus
from ..host.run_directory import no_space_error
from ..models import Model
from ..models.shortened import left_out
from ..results.comparison import Comparison
from ..results.doubts import change_difference, over_peak
from ..results.records import (
    MAX_CHOICES,
    PREDICT,
    TRAIN,
    Cell,
    CellResult,
    Epoch,
    Parity,
    Peak,
    Reference,
    ReferenceLosses,
    Target,
    TargetEpoch,
    Usage,
)
from ..results.statistics import MIN_ROUNDS
from ..workload import Job
from . import evidence, parity
from .checked import changed_figures
from .peak import PEAK_WORK
from .process import WorkerFailure, WorkerGroup, WorkerProcess, install
from .round_steps import round_steps
from .sampler import Sampler
from .usage import Clock
from .worker import Assignment, StartReply, epoch_batches

MAX_TARGET_SECONDS = 600.0
"""Seconds of training to a target, at most, where no limit was given."""
PEAK_ATTEMPTS = 3
"""Further measurements of the peak for a cell that is over it."""
LARGE_MODEL = 10_000_000
"""Parameters of a model whose proofs are not run at the same time."""

Progress = Callable[[str], None]
"""Called with what begins, in a few words."""

Save = Callable[[Comparison], None]
"""Called with the comparison whenever something in it is finished."""


def measure(
    comparison: Comparison, model: Model, data: Path, progress: Progress, save: Save
) -> None:
    """Prove and time every pending cell, and continue what is partly done.

    data: the directory that save_arrays wrote to.
    """
    Measurement(comparison, model, data, progress, save).run()


class Measurement:
    """Carry out a comparison.

    Every round of a cell runs in a new process: the placement of memory and threads makes one
    process some per cent faster than another for as long as it lives, and with a single process
    that would look like a difference between frameworks. Within a round the cells' epochs take
    turns, so that a drift of the machine's speed affects all frameworks equally.
    """

    def __init__(
        self,
        comparison: Comparison,
        model: Model,
        data: Path,
        progress: Progress,
        save: Save,
    ) -> None:
        self.comparison, self.settings = comparison, comparison.settings
        self.progress, self.save = progress, save
        self.model, self.data = model, data
        self.assignments = {
            result.name: self.assignment(result.cell) for result in comparison.results
        }

    def assignment(self, cell: Cell) -> Assignment:
        """Return what the cell's workers carry out."""
        return Assignment(
            cell.framework,
            Job(self.model, cell.device_type, cell.threads, "float32", cell.variant),
            self.data,
            cell.batch_size,
            self.comparison.data.batches(cell.batch_size),
            self.settings.seed,
            cell.gpu_index if cell.on_gpu else None,
            cell.task,
        )

    def run(self) -> None:
        """Do everything that is not done yet; a resumed run repeats nothing that was finished."""
        # the BLAS threads of each of the reference's threads would wait for one another busily
        with threadpool_limits(1, user_api="blas"):
            self.save(self.comparison)
            self.install_all()
            self.prove_all()
            for number in self.round_numbers():
                left = [result for result in self.pending() if not result.has_round(number)]
                for work in dict.fromkeys(result.cell.work for result in left):
                    self.run_round(number, [r for r in left if r.cell.work == work])
            if self.settings.target is not None:
                training = [r for r in self.pending() if r.cell.task == TRAIN]
                left = [result for result in training if not result.to_target]
                train = partial(self.train_to, self.settings.target)
                self.for_each(left, "while training to the target", train)
            if self.settings.trace_memory:
                training = [r for r in self.pending() if r.cell.task == TRAIN]
                left = [result for result in training if result.allocated is None]
                self.for_each(left, "while tracing its memory", self.trace_memory)
            self.measure_low_peaks_again()
            for result in self.pending():
                result.status = "ran"
            self.save(self.comparison)

    def pending(self) -> list[CellResult]:
        """Return the cells that have neither failed nor finished."""
        return [result for result in self.comparison.results if result.status == "pending"]

    def for_each(
        self, results: list[CellResult], where: str, work: Callable[[CellResult], None]
    ) -> None:
        """Call `work` for each cell and save; where: for the reason of a cell that fails."""
        for result in results:
            with _fail_cell_on_error(where, result):
                work(result)
            self.save(self.comparison)

    def round_numbers(self) -> Iterator[int]:
        """Yield as many rounds as asked for, or until the ratios are decided or the time is up."""
        settings, start = self.settings, time.monotonic()
        for number in count(1):
            if settings.rounds is not None and number > settings.rounds:
                return
            if settings.rounds is None and number > MIN_ROUNDS:
                late = time.monotonic() - start > self.comparison.max_round_seconds
                if late or self.comparison.decided:
                    return
            yield number

    def install_all(self) -> None:
        """Install what is missing, one cell after the other, before any proof begins.

        What one cell installs may change the versions that another one gets.
        """
        for result in self.pending():
            with _fail_cell_on_error("while installing", result):
                assignment, timeout = self.assignments[result.name], self.settings.timeout
                install(result.name, assignment, timeout, self.progress)

    def prove_all(self) -> None:
        """Run the proofs of all cells, several at a time; nothing is timed meanwhile.

        Cells that differ in the task or the batch size alone share a proof.
        """
        unproved: dict[tuple[Any, ...], list[CellResult]] = {}
        for result in self.pending():
            if result.parity is None:
                unproved.setdefault(self.assignments[result.name].proof, []).append(result)
        if not self.pending() or (not unproved and self.comparison.reference):
            return
        self.progress("parity")
        pool = ThreadPoolExecutor(1 + min(len(unproved), self.concurrent_proofs()))
        group = WorkerGroup()
        try:
            reference = pool.submit(self.compute_reference)
            proofs = {
                pool.submit(self.prove, results[0], reference, group): results
                for results in unproved.values()
            }
            for proof in as_completed(proofs):
                for result in proofs[proof]:
                    with _fail_cell_on_error("in parity", result):
                        result.parity = proof.result()
                self.save(self.comparison)
            rounding_only = reference.result().rounding_only
            masked = evidence.has_dropouts(self.model)
            self.comparison.reference = Reference(
                rounding_only, masked, left_out=left_out(self.model)
            )
            self.save(self.comparison)
        finally:  # after Ctrl-C do not wait for the proofs
            pool.shutdown(wait=False, cancel_futures=True)
            group.kill()

    def compute_reference(self) -> parity.ReferenceTensors:
        try:
            return parity.compute_reference(self.model, self.data / "expected")
        except OSError as error:
            raise no_space_error(self.data.parent, error) from None

    def prove(
        self, result: CellResult, reference: Future[parity.ReferenceTensors], group: WorkerGroup
    ) -> Parity:
        """Prove a cell in a process of its own; a large model only after the reference was
        computed, since both would need their memory at the same time.
        """
        if self.large:
            reference.result()
        with group.start(self.assignments[result.name], self.settings.timeout) as worker:
            worker.ask("observe")  # while the reference is computed
            return worker.ask("parity", reference.result())

    def reference_with_losses(self) -> Reference:
        """Return the reference with the losses that the timed epochs' first steps must have.

        That takes longer than the proof, so the first round is timed before, and no row of it is
        kept before they are known.
        """
        reference = self.comparison.reference
        assert reference is not None  # set by prove_all
        if reference.losses:
            return reference
        self.progress("losses of the first steps in the reference")
        wanted = {(a.task, a.batch_size): a for a in self.assignments.values()}
        pool = ThreadPoolExecutor(max(2, len(usable_cpus())))
        try:
            float64, float32 = (
                [pool.submit(self.reference_losses, a, dtype) for a in wanted.values()]
                for dtype in parity.PRECISIONS
            )
            losses = [
                ReferenceLosses(*work, exact.result(), single.result())
                for work, exact, single in zip(wanted, float64, float32, strict=True)
            ]
        finally:  # after Ctrl-C do not wait for them
            pool.shutdown(wait=False, cancel_futures=True)
        found = replace(reference, losses=losses)
        self.comparison.reference = found
        return found

    def reference_losses(self, assignment: Assignment, dtype: str) -> dict[str, list[float]]:
        """Return the losses that the first steps of the timed epochs must have, by epoch."""
        weights, batches = self.model.initial_weights(assignment.seed), epoch_batches(assignment)
        return evidence.reference_losses(self.model, weights, batches, assignment.task, dtype)

    def concurrent_proofs(self) -> int:
        """Return three, or the number of CPUs if that is larger; one for a large model.

        Each proof builds and compiles the model twice.
        """
        return 1 if self.large else max(3, len(usable_cpus()))

    @property
    def large(self) -> bool:
        """Return whether a proof takes some 10 GB in float64, with gradients and optimizer."""
        return parity.proof_model(self.model).parameter_count > LARGE_MODEL

    def run_round(self, number: int, results: list[CellResult]) -> None:
        """Run the first epochs of all cells, then the steady ones, interleaved.

        The cells have the same task and batch size: others are not compared with them, and the
        processes of all would need their memory at the same time. The round is kept only if it is
        finished.
        """
        shuffle = random.Random(f"{self.settings.seed} {number}").shuffle
        with ExitStack() as stack:
            cells = [
                CellRound(result, number, round_steps(self.comparison, result, number))
                for result in results
            ]
            if number > 1:
                self.start_together(cells, stack)
            for epoch in range(1 + self.settings.epochs):
                shuffle(cells)
                for cell in cells:
                    if cell.failed:
                        continue
                    name = self.epoch_name(cell, epoch)
                    self.progress(f"{cell.result.name}: {self.round_name(number)}, {name}")
                    with _fail_cell_on_error(f"in round {number}", cell.result):
                        if number == 1 and epoch == 0:
                            cell.start(stack.enter_context(self.worker(cell.result, cell.steps)))
                        cell.train(epoch)
                        if number == 1:  # a first figure, long before the round is over
                            seconds = cell.epochs[-1].wall_seconds
                            self.progress(f"{cell.result.name}: {name} took {seconds:.3g} s")
            trained = [cell for cell in cells if not cell.failed]
            if trained:
                reference = self.reference_with_losses()
            for cell in trained:
                with _fail_cell_on_error(f"in round {number}", cell.result):
                    is_whole = cell.steps == self.comparison.batches(cell.result)
                    cell.finish(reference, is_whole)
            self.save(self.comparison)
            for cell in cells:
                if not cell.failed and not self.has_peak(cell.result):
                    self.progress(f"{cell.result.name}: matrix multiplication and copy")
                    cell.measure_peak()
                    self.save(self.comparison)

    def start_together(self, cells: list[CellRound], stack: ExitStack) -> None:
        """Start the workers of a round side by side: nothing is timed before all are ready."""
        pool = ThreadPoolExecutor(len(usable_cpus()))
        try:
            starts = {}
            for cell in cells:
                worker = stack.enter_context(self.worker(cell.result, cell.steps))
                starts[pool.submit(cell.start, worker)] = cell
            for started in as_completed(starts):
                cell = starts[started]
                with _fail_cell_on_error(f"in round {cell.number}", cell.result):
                    started.result()
        finally:  # after Ctrl-C do not wait for them
            pool.shutdown(wait=False, cancel_futures=True)

    def round_name(self, number: int) -> str:
        """Return the number of a round, and of how many, for the progress."""
        return f"round {number} of {self.settings.rounds or 'as many as needed'}"

    def epoch_name(self, cell: CellRound, epoch: int) -> str:
        """Return which epoch of a round it is, and how much of one, for the progress."""
        name = f"epoch {epoch} of {self.settings.epochs}" if epoch else "first epoch"
        batches = self.comparison.batches(cell.result)
        return name if cell.steps == batches else f"{name} ({cell.steps} of {batches} batches)"

    def has_peak(self, result: CellResult) -> bool:
        """Return whether the peak was measured, or tried, for a cell that shares this one's proof.

        It depends on neither the task nor the batch size.
        """
        return any(other.peak or other.peak_problem for other in self.sharing_proof(result))

    def sharing_proof(self, result: CellResult) -> list[CellResult]:
        """Return the cells that differ from this one in the task or the batch size at most."""
        proof = self.assignments[result.name].proof
        return [r for r in self.comparison.results if self.assignments[r.name].proof == proof]

    def measure_low_peaks_again(self) -> None:
        """Measure the peak again where a cell is over it: something may have slowed the product."""
        for _ in range(PEAK_ATTEMPTS):
            for result in self.pending():
                shared = self.sharing_proof(result)
                before = next((other.peak for other in shared if other.peak), None)
                if before is None or over_peak(self.comparison, result) is None:
                    continue
                self.progress(f"{result.name}: matrix multiplication and copy once more")
                with suppress(WorkerFailure), self.worker(result) as worker:
                    worker.ask("start")
                    measured: Peak = worker.ask("peak", PEAK_WORK[result.cell.device_type])
                    result.peak = measured.highest(before)
                self.save(self.comparison)

    def train_to(self, target: Target, result: CellResult) -> None:
        """Train a cell from the initial weights until the target or the time limit.

        An interrupted training starts again from the beginning when the run is resumed.
        """
        epochs = list[TargetEpoch]()
        with self.worker(result) as worker:
            worker.ask("start")
            limit = self.settings.max_seconds or MAX_TARGET_SECONDS
            while sum(epoch.wall_seconds for epoch in epochs) < limit:
                name = f"epoch {len(epochs) + 1} to the target {target.what}"
                self.progress(f"{result.name}: {name}")
                epochs.append(worker.ask("target_epoch", len(epochs), target.what))
                if target.met_by(epochs[-1].reached):
                    break
        result.to_target = epochs

    def trace_memory(self, result: CellResult) -> None:
        """Trace what an epoch allocates, in a new process: tracing slows down what follows it."""
        self.progress(f"{result.name}: memory that an epoch allocates")
        with self.worker(result) as worker:
            worker.ask("start")
            result.allocated = worker.ask("allocated")

    def worker(self, result: CellResult, batches: int | None = None) -> WorkerProcess:
        """Start a worker process for a cell, whose epochs take so many batches; None for all."""
        assignment = self.assignments[result.name]
        if batches is not None:
            assignment = replace(assignment, batches=batches)
        return WorkerProcess(assignment, self.settings.timeout)


class CellRound:
    """Run one round of one cell in its process, and keep the results when the round is finished.

    steps: how many batches its epochs take.
    """

    def __init__(self, result: CellResult, number: int, steps: int) -> None:
        self.result, self.number, self.steps = result, number, steps
        self.epochs: list[Epoch] = []
        self.usage: list[Usage] = []
        cell = result.cell
        self.gpu = find_gpus().handle(cell.gpu_index) if cell.on_gpu else None

    @property
    def failed(self) -> bool:
        return self.result.status != "pending"

    def start(self, worker: WorkerProcess) -> None:
        """Build the model in the worker; WorkerFailure where its details changed."""
        clock = Clock.start()
        self.worker = worker
        started: StartReply = worker.ask("start")
        if not self.result.epochs:
            self.result.start_seconds, _ = clock.seconds()
            self.result.details = started.details
            self.result.threads_reported = started.threads
        if started.details != self.result.details:
            raise WorkerFailure("package versions changed since an earlier round")

    def train(self, epoch: int) -> None:
        """Train and time one epoch; WorkerFailure where its figures have other names."""
        with Sampler(self.worker.process.pid, self.gpu) as sampler:
            timed: Epoch = self.worker.ask("epoch", self.number, epoch)
        for before in (self.result.epochs or self.epochs)[:1]:
            if wrong := changed_figures(before.figures, timed.figures):
                raise WorkerFailure(wrong)
        self.epochs.append(timed)
        if epoch > 0 and (usage := sampler.usage(timed)):
            self.usage.append(usage)

    def finish(self, reference: Reference, is_whole: bool) -> None:
        """Move the round's results to the cell's; WorkerFailure where its weights changed otherwise
        than in the first round of as many steps.

        is_whole: whether the epochs took all batches.
        """
        result, final_stats = self.result, self.worker.ask("final_stats")
        predicts = result.cell.task == PREDICT
        longest = max((epoch.steps for epoch in result.epochs), default=0)
        if is_whole and self.steps > longest:
            result.predictions = final_stats.predictions
            if not predicts:
                result.test_accuracy = self.worker.ask("test_accuracy")
                if reference.masked:
                    result.masked_losses = self.worker.ask("masked_losses")
        before = result.changes.setdefault(self.steps, final_stats.changes)
        if differs := change_difference(reference, self.steps, final_stats.changes, before):
            raise WorkerFailure(f"{differs} than in an earlier round")
        if predicts:
            result.latencies.append(self.worker.ask("latency", self.number))
        result.epochs += self.epochs
        result.usage += self.usage
        if final_stats.peak_memory is not None:
            result.peak_memory = max(result.peak_memory or 0, final_stats.peak_memory)
        result.cpus_allowed = final_stats.cpus_allowed
        for name, value in final_stats.choices.items():
            known = result.choices.get(name, [])
            result.choices[name] = list(dict.fromkeys([*known, value]))[:MAX_CHOICES]

    def measure_peak(self) -> None:
        """Measure the peak after the round was kept, so that a failure costs only the peak."""
        try:
            self.result.peak = self.worker.ask("peak", PEAK_WORK[self.result.cell.device_type])
        except WorkerFailure as failure:
            self.result.peak_problem = str(failure)


@contextmanager
def _fail_cell_on_error(where: str, result: CellResult) -> Iterator[None]:
    """Record a WorkerFailure in the cell's result; where: when it happened."""
    try:
        yield
    except WorkerFailure as failure:
        if failure.unavailable:
            result.status, result.reason = "unavailable", str(failure)
        else:
            result.status, result.reason = "failed", f"{failure} ({where})"
        result.traceback = failure.traceback
