"""Describe losses and optimizers without a framework: what is minimised, and by which rule."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from ..inputs.checks import (
    LARGEST,
    OVER_0,
    SIZE,
    Below1,
    Boolean,
    Checked,
    NotNegative,
    Over0,
    Size,
    UpTo1,
    instance_of,
    number,
    optional,
    tuple_of,
)
from .parameters import Parameter


class Loss:
    """Describes what the optimizer minimises: one number for a batch of examples."""

    is_mean = True
    """Whether it is the mean over the batch, and not the sum."""

    def classes(self, output_shape: tuple[int, ...]) -> int | None:
        """Return the number of classes, or None where the model predicts numbers.

        Raise ValueError if the model's output does not fit.
        """
        raise NotImplementedError

    def label_shape(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an example's label: () for a class, (L,) for a class at each place of
        a sequence, (H, W) for one at each of a picture, and that of its numbers where the model
        predicts numbers.
        """
        return () if self.classes(output_shape) else output_shape

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        """Return the predicted label of each logit's or logits' place, int64, from the model's
        output (n, *output_shape). Only a loss of classes has it.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Checked, Loss):
    """Is -log softmax(logits)[label], the mean over the batch, and over all places where the model
    ends in logits for each of them: (L, classes) of a sequence, (classes, H, W) of a picture.

    label_smoothing: ε; the label then counts 1 - ε, and each class, the label's too, ε / classes
    (Szegedy et al., 2016).
    """

    label_smoothing: Below1 = 0.0

    def classes(self, output_shape: tuple[int, ...]) -> int:
        return output_shape[_class_axis(len(output_shape))]

    def label_shape(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        axis = _class_axis(len(output_shape)) % len(output_shape)
        return output_shape[:axis] + output_shape[axis + 1 :]

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        return logits.argmax(_class_axis(logits.ndim - 1))


def _class_axis(axes: int) -> int:
    """Return the axis of the classes in logits of so many axes: pictures have the channels first.

    It is counted from the end, so that a batch has the same.
    """
    return -3 if axes == 3 else -1


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Is -log sigmoid(logit) for the label 1 and -log(1 - sigmoid(logit)) for 0, the mean over the
    batch. The model ends in one logit.
    """

    def classes(self, output_shape: tuple[int, ...]) -> int:
        if output_shape != (1,):
            raise ValueError(f"{self} takes one logit, not the shape {output_shape}")
        return 2

    def predictions(self, logits: np.ndarray) -> np.ndarray:
        return (logits[:, 0] > 0).astype(np.int64)


class Regression(Loss):
    """Describes a loss of numbers, the mean over the batch and all outputs."""

    def classes(self, output_shape: tuple[int, ...]) -> None:
        if len(output_shape) != 1:
            raise ValueError(f"{self} takes a vector of outputs, not the shape {output_shape}")


@dataclass(frozen=True)
class MeanSquaredError(Regression):
    """Is (output - target)², the mean over the batch and all outputs."""


@dataclass(frozen=True)
class AbsoluteError(Regression):
    """Is |output - target|, the mean over the batch and all outputs; at 0 its slope is 0."""


@dataclass(frozen=True)
class Huber(Checked, Regression):
    """Is d² / 2 for d = |output - target| up to delta, and delta * (d - delta / 2) from there, the
    mean over the batch and all outputs (Huber, 1964).
    """

    delta: Over0


@dataclass(frozen=True)
class GivenGradient(Loss):
    """Stands for a loss that is not computed, its value 0, whose gradient with respect to the
    output, of any shape, is the label. For a part of a model, which ends where the model goes on.
    """

    is_mean = False

    def classes(self, output_shape: tuple[int, ...]) -> None:
        return None


MILESTONES = tuple_of("a tuple of steps, each from 1", SIZE, range(1, LARGEST))
Share = Annotated[float, number("a number over 0, at most 1", lambda value: 0 < value <= 1)]


class Schedule(Checked):
    """Describes how the learning rate changes from step to step."""

    def factor(self, step: int) -> float:
        """Return what the learning rate is multiplied by in a step, counted from 0."""
        raise NotImplementedError

    def shortened(self, steps: int) -> Schedule:
        """Return a schedule that shows all its phases in so few steps, for the proof."""
        return self


@dataclass(frozen=True)
class InverseTimeDecay(Schedule):
    """Divides the learning rate by 1 + decay * t in step t, as Keras' `decay` did."""

    decay: NotNegative

    def factor(self, step: int) -> float:
        return 1 / (1 + self.decay * step)


@dataclass(frozen=True)
class WarmupCosine(Schedule):
    """Rises linearly, and falls by a cosine to a minimum, as nanoGPT's training loop does.

    In step t, from 0: (t + 1) / (warmup + 1) before step `warmup`; from there m + (1 - m) * (1 +
    cos(π * (t - warmup) / (steps - warmup))) / 2; and m, the minimum, from step `steps` on.
    """

    warmup: Size
    steps: Size
    minimum: UpTo1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps <= self.warmup:
            raise ValueError(f"{self} must have more steps than warm-up")

    def factor(self, step: int) -> float:
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        part = min(1.0, (step - self.warmup) / (self.steps - self.warmup))
        return self.minimum + (1 - self.minimum) * (1 + math.cos(math.pi * part)) / 2

    def shortened(self, steps: int) -> Schedule:
        """Return one whose last step but one lies on the cosine, and whose last is the minimum."""
        return replace(self, warmup=max(1, steps - 3), steps=steps - 1)


@dataclass(frozen=True)
class Cosine(Schedule):
    """Falls by a cosine to a minimum (Loshchilov and Hutter, 2017).

    In step t, from 0: m + (1 - m) * (1 + cos(π * t / steps)) / 2; and m, the minimum, from step
    `steps` on.
    """

    steps: Size
    minimum: UpTo1

    def factor(self, step: int) -> float:
        fall = 1 + math.cos(math.pi * min(1.0, step / self.steps))
        return self.minimum + (1 - self.minimum) * fall / 2

    def shortened(self, steps: int) -> Schedule:
        """Return one whose last step is the minimum, and those before it on the cosine."""
        return replace(self, steps=steps - 1)


@dataclass(frozen=True)
class Steps(Schedule):
    """Multiplies the learning rate by gamma in each step of the milestones, counted from 0, for
    that step and all that follow: PyTorch's MultiStepLR.
    """

    milestones: Annotated[tuple[int, ...], MILESTONES]
    gamma: Over0

    def __post_init__(self) -> None:
        super().__post_init__()
        if sorted(set(self.milestones)) != list(self.milestones):
            raise ValueError(f"{self} must have milestones that ascend")

    def factor(self, step: int) -> float:
        return self.gamma ** sum(step >= milestone for milestone in self.milestones)

    def shortened(self, steps: int) -> Schedule:
        """Return one with the first milestones in the steps after the first one."""
        return replace(self, milestones=tuple(range(1, steps))[: len(self.milestones)])


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Rises from `start` to 1 in step `warmup`, and falls to `end` in step `steps`, where it stays:
    by half a cosine each, or linearly (Smith and Topin, 2019).

    PyTorch's OneCycleLR(total_steps=T, pct_start=p) has warmup = p T - 1 and steps = T - 1, and the
    ends 1 / div_factor and 1 / (div_factor * final_div_factor).
    """

    warmup: Size
    steps: Size
    start: Share
    end: Share
    linear: Boolean = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps <= self.warmup:
            raise ValueError(f"{self} must have more steps than warm-up")

    def factor(self, step: int) -> float:
        if step < self.warmup:
            return self._between(self.start, 1, step / self.warmup)
        part = (step - self.warmup) / (self.steps - self.warmup)
        return self._between(1, self.end, min(1.0, part))

    def _between(self, start: float, end: float, part: float) -> float:
        """Return the value at a part of the way from one to the other."""
        way = part if self.linear else (1 - math.cos(math.pi * part)) / 2
        return start + (end - start) * way

    def shortened(self, steps: int) -> Schedule:
        """Return one whose second step is at the peak; the others but the first are on the fall."""
        return replace(self, warmup=1, steps=steps)


SCHEDULE = optional(instance_of("a schedule of crossbench.models.training", Schedule))


@dataclass(frozen=True)
class Optimizer(Checked):
    """Describes how a gradient g changes a weight; learning_rate is always the first field.

    clip_norm: where the norm of all gradients together is larger, each is multiplied by clip_norm /
    norm first (Pascanu et al., 2013); None for never. schedule: None for a constant learning rate.
    """

    learning_rate: NotNegative
    clip_norm: Annotated[float | None, optional(OVER_0)] = field(default=None, kw_only=True)
    schedule: Annotated[Schedule | None, SCHEDULE] = field(default=None, kw_only=True)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        return self.learning_rate * (self.schedule.factor(step) if self.schedule else 1)

    def weight_decay_of(self, parameter: Parameter) -> float:
        """Return by how much, times the learning rate, a step shrinks the parameter."""
        return 0.0

    def with_scaled_learning_rate(self, factor: float) -> Optimizer:
        """Return the same optimizer with its learning rate multiplied by the factor."""
        return replace(self, learning_rate=self.learning_rate * factor)


class Decaying(Optimizer):
    """Describes an optimizer with a weight decay.

    is_coupled: whether it is a part of the gradient, which the optimizer's formula then changes.
    """

    weight_decay: float
    matrices_only: bool
    is_coupled: ClassVar[bool] = False

    def weight_decay_of(self, parameter: Parameter) -> float:
        return 0.0 if self.matrices_only and len(parameter.shape) < 2 else self.weight_decay


@dataclass(frozen=True)
class SGD(Decaying):
    """Computes velocity = momentum * velocity + g; weight -= learning_rate * velocity; nesterov:
    weight -= learning_rate * (g + momentum * velocity), with the new velocity, as PyTorch does
    (Sutskever et al., 2013). The velocity starts at 0, and has no dampening.

    weight_decay: times the weight, is added to g first. matrices_only: as in AdamW.
    """

    momentum: Below1 = 0.0
    nesterov: Boolean = False
    weight_decay: NotNegative = 0.0
    matrices_only: Boolean = False
    is_coupled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError(f"{self} must have a momentum: Nesterov's is one")


@dataclass(frozen=True)
class Adam(Optimizer):
    """Computes m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g²; in step t,
    from 1, weight -= learning_rate * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
    (Kingma and Ba, 2015; m and v start at 0). Keras adds epsilon before it divides by 1 - beta2^t.
    """

    beta1: Below1
    beta2: Below1
    epsilon: Over0


@dataclass(frozen=True)
class AdamW(Decaying):
    """Computes what Adam does, and weight -= learning_rate * weight_decay * weight, with the weight
    before the step and the learning rate of the step (Loshchilov and Hutter, 2019).

    matrices_only: decay the parameters of two axes or more alone, such as embeddings and kernels,
    not biases or the weights of norms.
    """

    beta1: Below1
    beta2: Below1
    epsilon: Over0
    weight_decay: NotNegative
    matrices_only: Boolean = False


@dataclass(frozen=True)
class Lion(Decaying):
    """Computes weight -= learning_rate * sign(beta1 * m + (1 - beta1) * g), and then
    m = beta2 * m + (1 - beta2) * g (Chen et al., 2023; m starts at 0). The weight decay is that of
    AdamW.
    """

    beta1: Below1
    beta2: Below1
    weight_decay: NotNegative = 0.0
    matrices_only: Boolean = False


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """Computes v = rho * v + (1 - rho) * g²; weight -= learning_rate * g / (sqrt(v) + epsilon).

    v starts at 0.
    """

    rho: Below1
    epsilon: Over0


@dataclass(frozen=True)
class Adadelta(Optimizer):
    """Computes v = rho * v + (1 - rho) * g²; change = g * sqrt(u + epsilon) / sqrt(v + epsilon);
    u = rho * u + (1 - rho) * change²; weight -= learning_rate * change (Zeiler, 2012; u and v start
    at 0).
    """

    rho: Below1
    epsilon: Over0


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Computes s = s + g²; weight -= learning_rate * g / (sqrt(s) + epsilon) (Duchi et al., 2011).

    s starts at initial_accumulator. Keras and optax add epsilon under the root.
    """

    initial_accumulator: NotNegative
    epsilon: Over0
