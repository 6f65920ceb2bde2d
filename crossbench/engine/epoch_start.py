"""Bring a workload to where an epoch of a round starts: its weights and its augmentation.

The first epoch of a round starts from the initial weights, and the next from these times
STEADY_SCALE. A later one goes on from where the one before ended, or, where the task changes no
weights, from a little more, so that no epoch can repeat what an earlier one computed.
"""

from __future__ import annotations

from ..models import Weights
from ..workload import Batches
from .batches import AugmentedBatches, cut
from .evidence import (
    DISTINCT_REPETITIONS,
    REPETITION_INCREMENT,
    STEADY_SCALE,
    scale_weights,
)
from .sketch import Sketches, sketches
from .tasks import PredictionTask, WorkloadTask


class EpochStart:
    """Bring one workload to the start of an epoch, 0 for the first of a round."""

    def __init__(self, work: WorkloadTask, initial: Weights, batches: Batches) -> None:
        self.work, self.initial = work, initial
        self.take(batches, len(batches))
        self.repetitions = 0

    def take(self, batches: Batches, steps: int) -> None:
        """Let the epochs that follow take so many batches of an epoch, the first ones."""
        self.steps = steps
        self.batches = batches if steps == len(batches) else cut(batches, steps)
        if isinstance(self.work, PredictionTask):
            self.work.batches = self.batches

    def scale(self, epoch: int) -> float:
        """Return what the initial weights are multiplied by for the epoch, or for the one from
        which it goes on.
        """
        if epoch == 0:
            return 1.0
        if self.work.continues or epoch == 1:
            return STEADY_SCALE
        return STEADY_SCALE + (epoch - 1.5) * REPETITION_INCREMENT  # between those of repetitions

    def other_scale(self) -> float:
        """Return another scale in each call, for the repetitions of an epoch."""
        self.repetitions = (self.repetitions + 1) % DISTINCT_REPETITIONS
        return STEADY_SCALE + self.repetitions * REPETITION_INCREMENT

    def weights(self, scale: float) -> Weights:
        """Return the initial weights times the scale."""
        return self.initial if scale == 1 else scale_weights(self.initial, scale)

    def change(self, scale: float, now: Weights | None = None) -> Sketches:
        """Return the change of each parameter since the initial weights times the scale.

        now: the workload's weights, where they are known.
        """
        now = self.work.workload.weights() if now is None else now
        return sketches(self.weights(scale), now)

    def load(self, scale: float) -> None:
        """Bring the workload to the initial weights times the scale, and to the first data."""
        self.work.workload.load_weights(self.weights(scale))
        self.augment(0)

    def go_on(self, epoch: int) -> None:
        """Bring the workload to the start of the epoch that follows the one it has just done."""
        if epoch <= 1 or not self.work.continues:
            self.load(self.scale(epoch))
        self.augment(max(0, epoch - 1))  # the first two have the same data

    def rewind(self, epoch: int, scale: float) -> None:
        """Bring the workload back to the start of an epoch, training those that it goes on from."""
        self.load(scale)
        for earlier in range(epoch - 1 if self.work.continues else 0):
            self.augment(earlier)
            self.work.run()
        self.augment(max(0, epoch - 1))

    def augment(self, epoch: int) -> None:
        """Choose the random augmentation of an epoch, counted from the initial weights."""
        if isinstance(self.batches, AugmentedBatches):
            self.batches.epoch = epoch
