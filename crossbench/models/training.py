"""Losses and optimizers without a framework: what is minimised, and by which rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SoftmaxCrossEntropy:
    """-log softmax(logits)[label], the mean over the batch. The model ends in logits."""


@dataclass(frozen=True)
class SGD:
    """velocity = momentum * velocity + gradient; weight -= learning_rate * velocity.

    The velocity starts at 0: no dampening, no Nesterov, no weight decay.
    """

    learning_rate: float
    momentum: float = 0.0


Loss = SoftmaxCrossEntropy
Optimizer = SGD
