"""Run one round of one cell, and record in its result what fails."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from ..host.gpus import find_gpus
from ..results.agreement import drift_of, epoch_difference, size_difference
from ..results.cells import MAX_CHOICES, CellResult, Change, epoch_name
from ..results.epochs import PREDICT, TRAIN, Epoch, Usage
from ..results.reference import Reference
from .checked import changed_figures
from .peak import PEAK_WORK
from .process import WorkerFailure, WorkerProcess
from .round_steps import WHOLE_ROUND
from .sampler import Sampler
from .usage import Clock
from .worker import StartReply, TestFigures

RANDOM = random.SystemRandom()
RUNS_OF_EPOCH = 4
"""How often an epoch may run until it is timed, or again: to settle, for the clock, and from the
state that the first repetition left."""
REPLAYED_SHARE = 0.5
"""Share of the rounds after the whole one, drawn by chance, in which an epoch is run again: in all
of them it took 21 % of a run's time."""


class CellRound:
    """Run one round of one cell in its process, and keep the results when the round is finished.

    steps: how many batches its first epoch takes. steady_steps: the others. batches: all of an
    epoch.
    """

    def __init__(
        self, result: CellResult, number: int, steps: int, steady_steps: int, batches: int
    ) -> None:
        self.result, self.number = result, number
        self.steps, self.steady_steps, self.batches = steps, steady_steps, batches
        self.test: TestFigures | None = None
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
            self.result.source_code = started.source_code
        if started.details != self.result.details:
            raise WorkerFailure("package versions changed since an earlier round")

    def steps_of(self, epoch: int) -> int:
        """Return how many steps an epoch takes."""
        return self.steady_steps if epoch else self.steps

    def known_seconds(self, epoch: int) -> float:
        """Return the seconds that an epoch will take about, with those that it goes on from, each
        as often as the timer may run it; 0 before the first one.
        """
        epochs = [*self.result.epochs, *self.epochs]
        steady = [e for e in epochs if e.epoch > 0] or epochs  # a first one may compile
        known = [e.wall_seconds / e.steps for e in steady]
        return RUNS_OF_EPOCH * (1 + epoch) * self.steps_of(epoch) * max(known, default=0.0)

    @property
    def is_longest(self) -> bool:
        """Return whether this is the first round with a whole epoch."""
        longest = max((epoch.steps for epoch in self.result.epochs), default=0)
        return self.steps == self.batches > longest

    def train(self, epoch: int, epochs: int) -> None:
        """Train and time one epoch of so many steady ones; WorkerFailure where its figures have
        other names. The test examples are predicted after the last whole one.
        """
        steps = self.steps_of(epoch)
        with Sampler(self.worker.process.pid, self.gpu) as sampler:
            timed: Epoch = self.worker.ask(
                *("epoch", self.number, epoch, steps), known_seconds=self.known_seconds(epoch)
            )
        for before in (self.result.epochs or self.epochs)[:1]:
            if wrong := changed_figures(before.figures, timed.figures):
                raise WorkerFailure(wrong)
        self.epochs.append(timed)
        if epoch > 0 and (usage := sampler.usage(timed)):
            self.usage.append(usage)
        is_last = epoch == (epochs if epochs > 1 else 0)
        if is_last and self.is_longest and self.result.cell.task == TRAIN:
            self.test = self.worker.ask("test")

    def finish(self, reference: Reference) -> None:
        """Move the round's results to the cell's; WorkerFailure where its weights changed otherwise
        than in the first round of as many steps, or otherwise in a repetition of an epoch.
        """
        result, final_stats = self.result, self.worker.ask("final_stats")
        predicts, is_longest = result.cell.task == PREDICT, self.is_longest
        if is_longest:
            result.predictions = final_stats.predictions
        if self.test is not None:
            result.test_accuracy, result.test_loss = self.test.accuracy, self.test.loss
        self._keep_changes(reference, final_stats.changes)
        if predicts:
            result.latencies.append(self.worker.ask("latency", self.number))
        if self.number <= WHOLE_ROUND or RANDOM.random() < REPLAYED_SHARE:
            result.replays.append(self.worker.ask("replay", self.number))
        if not predicts and not reference.masked and not result.loss_drift:
            drift = self.worker.ask("drift")
            result.loss_drift, result.change_drift = drift.losses, drift.change
        if is_longest and not predicts and reference.masked:
            result.undropped_losses = self.worker.ask("undropped_losses")
        for name, calls in self.worker.ask("untimed_calls").items():
            known = result.untimed.setdefault(name, calls)
            result.untimed[name] = min(known, calls, key=lambda found: found.seconds)
        result.epochs += self.epochs
        result.usage += self.usage
        if final_stats.peak_memory is not None:
            result.peak_memory = max(result.peak_memory or 0, final_stats.peak_memory)
        result.cpus_allowed = final_stats.cpus_allowed
        for name, value in final_stats.choices.items():
            known_values = result.choices.get(name, [])
            result.choices[name] = list(dict.fromkeys([*known_values, value]))[:MAX_CHOICES]

    def _keep_changes(self, reference: Reference, changes: dict[int, list[Change]]) -> None:
        """Keep the change of the weights in each epoch, and compare it; see `finish`."""
        result = self.result
        for epoch, (first, *others) in changes.items():
            for repetition, other in enumerate(others, 2):
                if differs := size_difference(reference, other, first):
                    raise WorkerFailure(
                        f"{differs} in repetition {repetition} of {epoch_name(epoch)} than in the "
                        "first one"
                    )
            known, steps = result.changes, self.steps_of(epoch)
            if epoch != 1:
                is_whole = steps == self.batches
                known = result.other_changes.setdefault(epoch, {}) if is_whole else {}
            before, compute = known.setdefault(steps, first), result.cell.compute
            if differs := epoch_difference(
                reference, epoch, steps, first, before, compute, drift_of(result)
            ):
                raise WorkerFailure(f"{differs} than in an earlier round")

    def measure_peak(self) -> None:
        """Measure the peak after the round was kept, so that a failure costs only the peak."""
        try:
            self.result.peak = self.worker.ask("peak", PEAK_WORK[self.result.cell.device_type])
        except WorkerFailure as failure:
            self.result.peak_problem = str(failure)


@contextmanager
def fail_cell_on_error(where: str, result: CellResult) -> Iterator[None]:
    """Record a WorkerFailure in the cell's result; where: when it happened."""
    try:
        yield
    except WorkerFailure as failure:
        if failure.unavailable:
            result.status, result.reason = "unavailable", str(failure)
        else:
            result.status, result.reason = "failed", f"{failure} ({where})"
        result.traceback = failure.traceback
