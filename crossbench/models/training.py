"""Describe losses and optimizers without a framework: what is minimised, and by which rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..checks import Below1, Checked, NotNegative, Over0


class Loss:
    """Describes what the optimizer minimises: one number for a batch of examples."""

    def classes(self, output_shape: tuple[int, ...]) -> int | None:
        """Return the number of classes, or None where the model predicts numbers.

        Raise ValueError if the model's output does not fit.
        """
        raise NotImplementedError

    def label_shape(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an example's label: () for a class, that of its numbers otherwise."""
        return ()

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Return the predicted label of each of n examples, (n,) int64, from the model's output.

        Only a loss of classes has it.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """Is -log softmax(logits)[label], the mean over the batch. The model ends in logits."""

    def classes(self, output_shape: tuple[int, ...]) -> int:
        """Return the number of classes; raise ValueError if the model's output does not fit."""
        if len(output_shape) != 1:
            raise ValueError(f"{self} takes a vector of logits, not the shape {output_shape}")
        return output_shape[0]

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Return the predicted label of each row of logits (n, classes)."""
        return logits.argmax(1)


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Is -log sigmoid(logit) for the label 1 and -log(1 - sigmoid(logit)) for 0, the mean over the
    batch. The model ends in one logit.
    """

    def classes(self, output_shape: tuple[int, ...]) -> int:
        """Return the number of classes; raise ValueError if the model's output does not fit."""
        if output_shape != (1,):
            raise ValueError(f"{self} takes one logit, not the shape {output_shape}")
        return 2

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Return the predicted label, 0 or 1, of each row of logits (n, 1)."""
        return (logits[:, 0] > 0).astype(np.int64)


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """Is (output - target)², the mean over the batch and all outputs."""

    def classes(self, output_shape: tuple[int, ...]) -> None:
        """Return None: the targets are numbers. Raise ValueError if the output does not fit."""
        if len(output_shape) != 1:
            raise ValueError(f"{self} takes a vector of outputs, not the shape {output_shape}")

    def label_shape(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an example's target: a number for each output."""
        return output_shape


class Optimizer(Checked):
    """Describes how a gradient g changes a weight; learning_rate is always the first field."""

    learning_rate: NotNegative

    def with_scaled_learning_rate(self, factor: float) -> Optimizer:
        """Return the same optimizer with its learning rate multiplied by the factor."""
        return replace(self, learning_rate=self.learning_rate * factor)  # type: ignore[type-var]


@dataclass(frozen=True)
class SGD(Optimizer):
    """Computes velocity = momentum * velocity + g; weight -= learning_rate * velocity.

    The velocity starts at 0: no dampening, no Nesterov, no weight decay.
    """

    learning_rate: NotNegative
    momentum: Below1 = 0.0


@dataclass(frozen=True)
class Adam(Optimizer):
    """Computes m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g²; in step t,
    from 1, weight -= learning_rate * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
    (Kingma and Ba, 2015; m and v start at 0). Keras adds epsilon before it divides by 1 - beta2^t.
    """

    learning_rate: NotNegative
    beta1: Below1
    beta2: Below1
    epsilon: Over0


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """Computes v = rho * v + (1 - rho) * g²; weight -= learning_rate * g / (sqrt(v) + epsilon).

    v starts at 0. decay: in step t, from 0, the learning rate is learning_rate / (1 + decay * t),
    as in Keras.
    """

    learning_rate: NotNegative
    rho: Below1
    epsilon: Over0
    decay: NotNegative = 0.0


@dataclass(frozen=True)
class Adadelta(Optimizer):
    """Computes v = rho * v + (1 - rho) * g²; change = g * sqrt(u + epsilon) / sqrt(v + epsilon);
    u = rho * u + (1 - rho) * change²; weight -= learning_rate * change (Zeiler, 2012; u and v start
    at 0).
    """

    learning_rate: NotNegative
    rho: Below1
    epsilon: Over0
