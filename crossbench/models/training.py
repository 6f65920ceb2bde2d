"""Losses and optimizers without a framework: what is minimised, and by which rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..checks import Below1, Checked, NotNegative, Over0


class Loss:
    """What the optimizer makes smaller, a number for a batch of examples."""

    def classes(self, output_shape: tuple[int, ...]) -> int:
        """How many labels the model tells apart; ValueError where it ends in something else."""
        raise NotImplementedError

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """The label of each row of what the model gives for n examples."""
        raise NotImplementedError


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """-log softmax(logits)[label], the mean over the batch. The model ends in logits."""

    def classes(self, output_shape: tuple[int, ...]) -> int:
        """How many labels the model tells apart; ValueError where it ends in something else."""
        if len(output_shape) != 1:
            raise ValueError(f"{self} takes a vector of logits, not the shape {output_shape}")
        return output_shape[0]

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """The label of each row of (n, classes)."""
        return logits.argmax(1)


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """-log sigmoid(logit) for the label 1, -log(1 - sigmoid(logit)) for 0, the mean over the batch.
    The model ends in one logit.
    """

    def classes(self, output_shape: tuple[int, ...]) -> int:
        """How many labels the model tells apart; ValueError where it ends in something else."""
        if output_shape != (1,):
            raise ValueError(f"{self} takes one logit, not the shape {output_shape}")
        return 2

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """The label of each row of (n, 1)."""
        return (logits[:, 0] > 0).astype(np.int64)


class Optimizer(Checked):
    """How a gradient g changes a weight; learning_rate is every rule's first field."""

    learning_rate: NotNegative

    def slower(self, factor: float) -> Optimizer:
        """The same rule with a learning rate of factor times as much."""
        return replace(self, learning_rate=self.learning_rate * factor)  # type: ignore[type-var]


@dataclass(frozen=True)
class SGD(Optimizer):
    """velocity = momentum * velocity + g; weight -= learning_rate * velocity.

    The velocity starts at 0: no dampening, no Nesterov, no weight decay.
    """

    learning_rate: NotNegative
    momentum: Below1 = 0.0


@dataclass(frozen=True)
class Adam(Optimizer):
    """m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g²; in step t, from 1:
    weight -= learning_rate * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
    (Kingma and Ba, 2015; m and v start at 0). Keras adds epsilon before it divides by 1 - beta2^t.
    """

    learning_rate: NotNegative
    beta1: Below1
    beta2: Below1
    epsilon: Over0


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """v = rho * v + (1 - rho) * g²; weight -= learning_rate * g / (sqrt(v) + epsilon), v from 0.

    decay: in step t, from 0, the rate is learning_rate / (1 + decay * t), as Keras' `decay`.
    """

    learning_rate: NotNegative
    rho: Below1
    epsilon: Over0
    decay: NotNegative = 0.0


@dataclass(frozen=True)
class Adadelta(Optimizer):
    """v = rho * v + (1 - rho) * g²; change = g * sqrt(u + epsilon) / sqrt(v + epsilon);
    u = rho * u + (1 - rho) * change²; weight -= learning_rate * change (Zeiler, 2012; u and v from
    0).
    """

    learning_rate: NotNegative
    rho: Below1
    epsilon: Over0
