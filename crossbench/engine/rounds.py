"""Run the measurement in order: parity for every cell, then rounds of interleaved epochs.

One worker trains at a time. If a worker fails, its cell fails, and no other.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from ..host.machine import available_bytes, cpu_count
from ..inputs.names import FLOAT32
from ..models import Model
from ..models.parts import Part, groups, parts
from ..models.shortened import in_whole_model, left_out
from ..results.cells import Cell, CellResult
from ..results.comparison import Comparison
from ..results.doubts import over_peak
from ..results.epochs import TRAIN, TargetEpoch
from ..results.machine import Peak
from ..results.reference import Reference, ReferenceLosses
from ..results.settings import Target
from ..results.statistics import MIN_ROUNDS
from ..workload import Job
from . import batch_gradient, evidence
from .assignment import Assignment
from .cell_round import RUNS_OF_EPOCH, CellRound, fail_cell_on_error
from .peak import PEAK_WORK
from .process import WorkerFailure, WorkerProcess, install
from .proofs import GRADIENT, LARGE_MODEL, PARITY, PARTS, PRECISION, Proof, Proofs
from .round_steps import first_steps, steady_steps
from .time_left import TimeLeft

MAX_TARGET_SECONDS = 600.0
"""Seconds of training to a target, at most, where no limit was given."""
MEMORY_SHARE = 4 / 5
"""Share of the available memory that the processes of a round may need together."""
BATCH_COPIES = 3
"""Copies of an epoch's batches that a worker holds at once, at most: two of the engine's, while it
maps them, and the framework's."""
STEPS = first_steps, steady_steps
"""What chooses how many steps the first epoch of a round takes, and the steady ones."""
PEAK_ATTEMPTS = 3
"""Further measurements of the peak for a cell that is over it."""

Progress = Callable[[str], None]
"""Called with what begins, in a few words."""

Save = Callable[[Comparison], None]
"""Called with the comparison whenever something in it is finished."""


class Measurement:
    """Carry out a comparison: prove and time every pending cell, and continue what is partly done.

    data: the directory that save_arrays wrote to.

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
        self.told, self.save = progress, save
        self.time_left = TimeLeft()
        self.model, self.data = model, data
        self.large = model.parameter_count > LARGE_MODEL
        self.parts = parts(model) if self.settings.layers else []
        self.assignments = {
            result.name: self.assignment(result.cell) for result in comparison.results
        }
        self.needs: dict[str, tuple[int, int]] = {}
        """By a cell's name, the bytes that its largest process needed, and its epochs' steps."""

    def assignment(self, cell: Cell) -> Assignment:
        """Return what the cell's workers carry out."""
        return Assignment(
            cell.framework,
            Job(self.model, cell.device_type, cell.threads, FLOAT32, cell.variant, cell.compute),
            self.data,
            cell.batch_size,
            self.comparison.data.batches(cell.batch_size),
            self.settings.seed,
            cell.gpu_index if cell.on_gpu else None,
            cell.task,
        )

    def progress(self, what: str) -> None:
        """Tell what begins, and how long the rest will take."""
        self.told(what + self.time_left.words())

    def run(self) -> None:
        """Do everything that is not done yet; a resumed run repeats nothing that was finished."""
        # the BLAS threads of each of the reference's threads would wait for one another busily
        with threadpool_limits(1, user_api="blas"):
            self.save(self.comparison)
            self.install_all()
            self.prove_all()
            if self.large and self.pending():  # its memory is needed for the rounds' processes
                self.reference_with_losses()
            for number in self.round_numbers():
                left = [result for result in self.pending() if not result.has_round(number)]
                for work in dict.fromkeys(result.cell.work for result in left):
                    self.run_round(number, [r for r in left if r.cell.work == work])
            for result in self.pending():
                result.extra_problem = None
            if self.settings.target is not None:
                left = [result for result in self.training() if not result.to_target]
                train = partial(self.train_to, self.settings.target)
                self.for_each(left, "training to the target", train)
            if self.settings.trace_memory:
                left = [result for result in self.training() if result.allocated is None]
                self.for_each(left, "tracing of memory", self.trace_memory)
            self.measure_low_peaks_again()
            for result in self.pending():
                result.status = "ran"
            self.save(self.comparison)

    def pending(self) -> list[CellResult]:
        """Return the cells that have neither failed nor finished."""
        return [result for result in self.comparison.results if result.status == "pending"]

    def training(self) -> list[CellResult]:
        """Return the pending cells that train."""
        return [result for result in self.pending() if result.cell.task == TRAIN]

    def for_each(
        self, results: list[CellResult], what: str, work: Callable[[CellResult], None]
    ) -> None:
        """Call `work` for each cell and save. What fails costs this work alone, not the rounds."""
        for result in results:
            try:
                work(result)
            except WorkerFailure as failure:
                found = [result.extra_problem, f"its {what} failed: {failure}"]
                result.extra_problem = "; ".join(filter(None, found))
                result.traceback = failure.traceback
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
            with fail_cell_on_error("while installing", result):
                assignment, timeout = self.assignments[result.name], self.settings.timeout
                install(result.name, assignment, timeout, self.progress)

    def prove_all(self) -> None:
        """Prove that every cell computes the same as the reference; then, where it is needed, its
        precision, the gradients of a whole batch, and the parts of a step.
        """
        pending, model = self.pending(), self.model
        unproved = [r for r in pending if r.parity is None or self.comparison.reference is None]
        for expected in self.prove(PARITY, unproved):
            self.comparison.reference = Reference(
                in_whole_model(model, expected.rounding_only),
                evidence.has_dropouts(model),
                left_out=left_out(model),
            )
            self.save(self.comparison)
        rounding = [r for r in self.pending() if r.cell.compute != FLOAT32]
        self.prove(PRECISION, [r for r in rounding if r.precision is None])
        unproved = [r for r in self.training() if r.gradient is None]
        needed = [r for r in unproved if batch_gradient.is_needed(model, r.cell.batch_size)]
        self.prove(GRADIENT, needed)
        if self.parts:
            self.prove(PARTS, [r for r in self.training() if not r.parts])

    def prove(self, proof: Proof, unproved: list[CellResult]) -> list[Any]:
        """Have cells proved in one way, several at a time, and keep what is found in their results.

        Returns what was expected of them.
        """
        shared: dict[Assignment, list[CellResult]] = {}
        for result in unproved:
            assignment = proof.assignment(self.assignments[result.name])
            shared.setdefault(assignment, []).append(result)
        if not shared:
            return []
        self.progress(f"parity of {proof.what}" if proof.what else "parity")
        where = f"in the proof of {proof.what}" if proof.what else "in parity"
        expected: dict[Any, Future[Any]] = {}
        results_of: dict[Future[Any], list[CellResult]] = {}
        large = proof.is_large(self.model)
        with Proofs(self.data, self.settings.timeout, large) as proofs:
            for assignment, results in shared.items():
                key = (assignment.job.compute, assignment.batch_size)
                if proof.expect and key not in expected:
                    expected[key] = proofs.expect(proof.expect, assignment)
                needed = [expected[key]] if proof.expect else []
                results_of[proofs.prove(proof.prove, assignment, *needed)] = results
            for done in as_completed(results_of):
                for result in results_of[done]:
                    with fail_cell_on_error(where, result):
                        found = done.result()
                        # times are added to those of the parts, so each cell has its own
                        setattr(result, proof.field, deepcopy(found) if proof is PARTS else found)
                self.save(self.comparison)
            return [future.result() for future in expected.values()]

    def reference_with_losses(self) -> Reference:
        """Return the reference with the losses that the timed epochs' first steps must have.

        That takes longer than the proof, so the first round is timed before, unless the model is
        large, and no row of it is kept before they are known.
        """
        reference = self.comparison.reference
        assert reference is not None  # set by prove_all
        if reference.losses:
            return reference
        self.progress("losses of the first steps in the reference")
        wanted = {(a.task, a.batch_size): a for a in self.assignments.values()}
        used = dict.fromkeys(result.cell.compute for result in self.comparison.results)
        with thread_pool(1 if self.large else max(2, cpu_count())) as pool:
            begun = []
            for work, assignment in wanted.items():
                losses_of = partial(evidence.reference_losses, assignment)
                begin = partial(pool.submit, losses_of)
                rounded = {compute: begin(compute) for compute in used if compute != FLOAT32}
                sides = [begin(None, s) for s in evidence.near_zero_sides(self.model, *work)]
                begun.append((work, begin(None), begin(FLOAT32), rounded, sides))
            losses = [
                ReferenceLosses(
                    *work,
                    float64.result(),
                    float32.result(),
                    {compute: future.result() for compute, future in rounded.items()},
                    [side.result() for side in sides],
                )
                for work, float64, float32, rounded, sides in begun
            ]
        found = replace(reference, losses=losses)
        self.comparison.reference = found
        return found

    def run_round(self, number: int, results: list[CellResult]) -> None:
        """Run a round of cells that have the same task and batch size: others are not compared with
        them. Cells whose processes do not fit into memory beside one another run in turns, which
        are drawn anew in each round, so that no cell is always with the same ones. A round that is
        interrupted is run again as a whole: ratios are paired within it.
        """
        left, shuffle = list(results), random.Random(f"{self.settings.seed} {number}").shuffle
        shuffle(left)
        for turns in count(1):
            self.comparison.most_turns = max(turns, self.comparison.most_turns)
            self.run_turn(number, left, shuffle)
            if not left:
                self.save(self.comparison)
                return

    def run_turn(
        self, number: int, left: list[CellResult], shuffle: Callable[[list[CellRound]], None]
    ) -> None:
        """Run the first epochs of the cells that fit, then the steady ones, interleaved, in another
        order each time. The round of a cell is kept only if it is finished.

        left: the cells of the round, from which those that were run are taken.
        """
        with ExitStack() as stack:
            cells = list[CellRound]()
            if number == 1 or not all(result.name in self.needs for result in left):
                # a first figure comes long before all processes have started
                for cell in self.fitting(number, left):
                    cells.append(cell)
                    with fail_cell_on_error(f"in round {number}", cell.result):
                        cell.start(stack.enter_context(self.worker(cell.result, cell.steps)))
                    self.train([cell], 0)
            else:
                cells += self.fitting(number, left)
                self.start_together(cells, stack)
                self.train(cells, 0)
            for epoch in range(1, 1 + self.settings.epochs):
                shuffle(cells)
                self.train(cells, epoch)
            self.keep_round([cell for cell in cells if not cell.failed])
            if not left:
                self.time_left.predict(self.comparison, number)
                self.save(self.comparison)
            self.measure_peaks([cell for cell in cells if not cell.failed])
            for cell in cells:
                if not cell.failed and cell.result.cell.task == TRAIN:
                    self.time_parts(cell)

    def fitting(self, number: int, left: list[CellResult]) -> Iterator[CellRound]:
        """Take cells from those left and yield them, while their processes fit into memory: at
        least one.
        """
        room, beside = MEMORY_SHARE * available_bytes(), list[CellRound]()
        while left:
            first, steady = (choose(self.comparison, left[0], number) for choose in STEPS)
            cell = CellRound(left[0], number, first, steady, self.comparison.batches(left[0]))
            if beside and sum(map(self.need, [*beside, cell])) > room:
                return
            beside.append(cell)
            del left[0]
            yield cell

    def need(self, cell: CellRound) -> int:
        """Return how many bytes a cell's process will need.

        That is the peak of an earlier one of the cell, or else of any, with the engine's batches,
        which that peak need not hold, and copies of the batches that its round did not have.
        """
        largest = max(self.needs.values(), default=(0, cell.steps))
        peak, steps = self.needs.get(cell.result.name, largest)
        example = 4 * math.prod(self.model.input_shape)
        batch = cell.result.cell.batch_size * example
        return peak + batch * (cell.steps + BATCH_COPIES * max(0, cell.steps - steps))

    def train(self, cells: list[CellRound], epoch: int) -> None:
        """Train an epoch of each cell, one after the other."""
        for cell in cells:
            if cell.failed:
                continue
            name = self.epoch_name(cell, epoch)
            self.progress(f"{cell.result.name}: {self.round_name(cell.number)}, {name}")
            with fail_cell_on_error(f"in round {cell.number}", cell.result):
                cell.train(epoch, self.settings.epochs)
                self.keep_need(cell)
                if cell.number == 1:
                    seconds = cell.epochs[-1].wall_seconds
                    self.progress(f"{cell.result.name}: {name} took {seconds:.3g} s")

    def keep_need(self, cell: CellRound) -> None:
        """Keep the peak of a cell's process for `need`."""
        name, known = cell.result.name, (cell.worker.peak_bytes, cell.steps)
        self.needs[name] = max(self.needs.get(name, known), known)

    def keep_round(self, cells: list[CellRound]) -> None:
        """Move the results of a round that is over to those of its cells."""
        for cell in cells:
            reference = self.reference_with_losses()
            name = f"{cell.result.name}: {self.round_name(cell.number)}"
            self.progress(f"{name}, checks")
            with fail_cell_on_error(f"in round {cell.number}", cell.result):
                cell.finish(reference)
                self.keep_need(cell)

    def measure_peaks(self, cells: list[CellRound]) -> None:
        """Measure the peak of the cells that have none yet."""
        for cell in cells:
            if not self.has_peak(cell.result):
                self.progress(f"{cell.result.name}: matrix multiplication and copy")
                cell.measure_peak()

    def time_parts(self, cell: CellRound) -> None:
        """Time the parts of a training step in a cell's process; a problem costs the part alone."""
        parts = [part for part in self.parts if cell.result.parts[part.name].problem is None]
        for group in groups(parts):
            if cell.worker.process.poll() is not None:
                break
            self.time_group(cell, group)

    def time_group(self, cell: CellRound, group: list[Part]) -> None:
        """Time parts that follow one another; where that fails, each of them by itself."""
        names = " to ".join(dict.fromkeys((group[0].name, group[-1].name)))
        self.progress(f"{cell.result.name}: {self.round_name(cell.number)}, {names}")
        try:
            times = cell.worker.ask("time_parts", group, cell.number)
        except WorkerFailure as failure:
            if len(group) > 1 and cell.worker.process.poll() is None:
                for part in group:
                    self.time_group(cell, [part])
                return
            for part in group:
                cell.result.parts[part.name].problem = str(failure)
        else:
            for part, time in zip(group, times, strict=True):
                cell.result.parts[part.name].times.append(time)

    def start_together(self, cells: list[CellRound], stack: ExitStack) -> None:
        """Start the workers of a round side by side: nothing is timed before all are ready."""
        with thread_pool(cpu_count()) as pool:
            starts = {}
            for cell in cells:
                with fail_cell_on_error(f"in round {cell.number}", cell.result):
                    worker = stack.enter_context(self.worker(cell.result, cell.steps))
                    starts[pool.submit(cell.start, worker)] = cell
            for started in as_completed(starts):
                cell = starts[started]
                with fail_cell_on_error(f"in round {cell.number}", cell.result):
                    started.result()

    def round_name(self, number: int) -> str:
        """Return the number of a round, and of how many, for the progress."""
        return f"round {number} of {self.settings.rounds or 'as many as needed'}"

    def epoch_name(self, cell: CellRound, epoch: int) -> str:
        """Return which epoch of a round it is, and how much of one, for the progress."""
        name = f"epoch {epoch} of {self.settings.epochs}" if epoch else "first epoch"
        steps, batches = cell.steps_of(epoch), cell.batches
        return name if steps == batches else f"{name} ({steps} of {batches} batches)"

    def has_peak(self, result: CellResult) -> bool:
        """Return whether the peak was measured, or tried, for a cell that shares this one's proof.

        It depends on neither the task nor the batch size.
        """
        return any(other.peak or other.peak_problem for other in self.sharing_proof(result))

    def sharing_proof(self, result: CellResult) -> list[CellResult]:
        """Return the cells that differ from this one in the task or the batch size at most."""
        shared = self.assignments[result.name].without_batch
        found = self.comparison.results
        return [r for r in found if self.assignments[r.name].without_batch == shared]

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
            known = max((e.wall_seconds for e in result.epochs if e.epoch == 0), default=0.0)
            while sum(epoch.wall_seconds for epoch in epochs) < limit:
                name = f"epoch {len(epochs) + 1} to the target {target.what}"
                self.progress(f"{result.name}: {name}")
                asked = ("target_epoch", len(epochs), target.what)
                epochs.append(worker.ask(*asked, known_seconds=RUNS_OF_EPOCH * known))
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


@contextmanager
def thread_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Make a pool of threads; at the end, drop what is not begun, and do not wait for the rest."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
