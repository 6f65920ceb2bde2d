"""Do what an epoch of a cell does, its task: train on the batches, or predict them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

import numpy as np

from ..adapters.reference import loss_and_gradient
from ..models import Model
from ..results.epochs import Predictions
from ..workload import Batches, Workload
from .sketch import sketch

NEAR_TIE = 1e-4
"""Two logits are nearly tied where they differ by less than this times the largest logit of the
example: float32 logits differ between frameworks by some 1e-6 of it, and by 1e-5 in deep models."""


class WorkloadTask(Protocol):
    """Does one epoch of a workload: `run` is timed, the rest is not."""

    continues: ClassVar[bool]
    """Whether an epoch starts from the weights that the one before left."""
    workload: Workload

    def run(self) -> Any: ...

    def losses(self, result: Any) -> np.ndarray:
        """Return the loss of each step, (steps,), from what `run` returned."""

    def fingerprints(self, result: Any) -> np.ndarray:
        """Return numbers that tell what each step computed, (steps, n).

        The norm of the difference of two steps' estimates that of what they computed.
        """


class TrainingTask:
    """Train one epoch."""

    continues: ClassVar[bool] = True

    def __init__(self, workload: Workload) -> None:
        self.workload, self.run = workload, workload.train_epoch

    def losses(self, result: np.ndarray) -> np.ndarray:
        return result

    def fingerprints(self, result: np.ndarray) -> np.ndarray:
        """Return the loss of each step."""
        return np.asarray(result, np.float64)[:, None]


class PredictionTask:
    """Predict the logits of every batch of an epoch.

    Their losses, which are not timed, are compared with the reference's and with those of other
    frameworks: so a framework that skips work, or returns logits of an earlier epoch, is caught.
    """

    continues: ClassVar[bool] = False

    def __init__(self, workload: Workload, model: Model, batches: Batches) -> None:
        self.workload, self.run = workload, workload.predict_epoch
        self.model, self.batches = model, batches

    def losses(self, result: Iterable[np.ndarray]) -> np.ndarray:
        """Return the loss of each batch, from its logits (batch, *output_shape)."""
        pairs = zip(result, self.batches, strict=True)
        return np.array([prediction_loss(self.model, x, batch.labels) for x, batch in pairs])

    def fingerprints(self, result: Iterable[np.ndarray]) -> np.ndarray:
        """Return a sketch of the logits of each batch."""
        return np.stack([sketch(np.zeros_like(logits), logits) for logits in result])

    def predictions(self, result: Iterable[np.ndarray]) -> Predictions | None:
        """Return how many labels are predicted right; None for a model without classes."""
        if self.model.classes is None:
            return None
        correct = near_ties = 0
        for logits, batch in zip(result, self.batches, strict=True):
            correct += int((self.model.loss.predictions(logits) == batch.labels).sum())
            near_ties += count_near_ties(logits.reshape(-1, logits.shape[-1]))
        return Predictions(correct, near_ties)


def prediction_loss(model: Model, logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the loss of logits (batch, *output_shape), computed in float64."""
    exact = logits.astype(np.float64)
    if labels.dtype.kind == "f":
        labels = labels.astype(np.float64)
    return loss_and_gradient(model.loss, exact, labels)[0]


def count_near_ties(logits: np.ndarray) -> int:
    """Return for how many rows of logits (n, outputs) the two largest are nearly tied.

    A single logit is compared with 0, the bound between its two classes; as there is nothing to
    relate it to, it is nearly tied where it is below NEAR_TIE.
    """
    if logits.shape[1] == 1:
        return int((np.abs(logits[:, 0]) < NEAR_TIE).sum())
    second, first = np.partition(logits, -2, axis=1)[:, -2:].T
    return int((first - second < NEAR_TIE * np.abs(logits).max(1)).sum())
