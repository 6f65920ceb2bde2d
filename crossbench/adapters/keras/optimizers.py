"""Change what Keras' optimizers compute differently, so that all frameworks take the same step.

On TensorFlow an embedding's gradient has only the rows of the tokens of the batch, several times
where a token is there several times. Keras' optimizers leave the other rows' moments as they are
and square each of a row's parts. The other frameworks compute with the whole gradient.

The programs that source.py writes hold the optimizers that they need, without annotations.
"""

# mypy: disallow-subclassing-any=False, disable-error-code="misc,name-defined"
from __future__ import annotations

from typing import Any

import keras
from keras import ops


class EpsilonAfter(keras.optimizers.Optimizer):
    """Mixed into Adam, add epsilon after the bias correction (Kingma and Ba, 2015); Keras adds it
    before.

    Keras' epsilon stands for epsilon * sqrt(1 - beta2^t), in step t.
    """

    epsilon: Any

    def _backend_update_step(self, gradients: Any, variables: Any, learning_rate: Any) -> None:
        epsilon, dtype = self.epsilon, variables[0].dtype
        step = ops.cast(self.iterations + 1, dtype)
        power = ops.power(ops.cast(self.beta_2, dtype), step)
        self.epsilon = epsilon * ops.sqrt(1 - power)
        super()._backend_update_step(gradients, variables, learning_rate)
        self.epsilon = epsilon


class Adam(EpsilonAfter, type(keras.optimizers.Adam())):
    """Be Keras' own on the backend, with epsilon after the bias correction."""


class AdamW(EpsilonAfter, type(keras.optimizers.AdamW())):
    """Be Keras' own on the backend, with epsilon after the bias correction."""


class CoupledSGD(keras.optimizers.SGD):
    """Make the weight decay a part of the gradient, and the learning rate none of the velocity, as
    PyTorch does; in Keras each is the other way round.
    """

    def _apply_weight_decay(self, variables: Any) -> None:
        pass

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        velocity = self.momentums[self._get_variable_index(variable)]
        if self.weight_decay and self._use_weight_decay(variable):
            gradient = gradient + variable * self.weight_decay
        self.assign(velocity, velocity * self.momentum + gradient)
        step = gradient + velocity * self.momentum if self.nesterov else velocity
        self.assign_sub(variable, step * ops.cast(learning_rate, variable.dtype))


class ParallelCoupledSGD(type(keras.optimizers.SGD())):
    """Be CoupledSGD, for all variables at once as Keras' own is on PyTorch."""

    def _apply_weight_decay(self, variables: Any) -> None:
        pass

    def _parallel_update_step(self, grads: Any, variables: Any, learning_rate: Any) -> None:
        import torch

        values = [v.value for v in variables]
        momenta = [self.momentums[self._get_variable_index(v)] for v in variables]
        velocities = [momentum.value for momentum in momenta]
        if self.weight_decay:
            decays = [self.weight_decay * self._use_weight_decay(v) for v in variables]
            grads = torch._foreach_add(grads, torch._foreach_mul(values, decays))
        torch._foreach_mul_(velocities, self.momentum)
        torch._foreach_add_(velocities, grads)
        steps = velocities
        if self.nesterov:
            steps = torch._foreach_add(grads, velocities, alpha=self.momentum)
        torch._foreach_add_(values, steps, alpha=-learning_rate)


class Adagrad(keras.optimizers.Adagrad):
    """Add epsilon to the square root; Keras adds it under the root."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        accumulator = self._accumulators[self._get_variable_index(variable)]
        self.assign_add(accumulator, ops.square(gradient))
        step = gradient / (ops.sqrt(accumulator) + self.epsilon)
        self.assign_sub(variable, step * ops.cast(learning_rate, variable.dtype))


class Joined(keras.optimizers.schedules.LearningRateSchedule):
    """Follow one schedule up to a step, and from there another one, which begins with it."""

    def __init__(self, first: Any, second: Any, boundary: Any) -> None:
        super().__init__()
        self.first, self.second, self.boundary = first, second, boundary

    def __call__(self, step: Any) -> Any:
        later = self.second(step - self.boundary)
        return ops.where(step < self.boundary, self.first(step), later)


class RMSprop(keras.optimizers.RMSprop):
    """Add epsilon to the square root; Keras adds it under the root."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        velocity = self._velocities[self._get_variable_index(variable)]
        change = (1 - self.rho) * ops.square(gradient)
        self.assign(velocity, self.rho * velocity + change)
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, rate * gradient / (ops.sqrt(velocity) + self.epsilon))


class ParallelRMSprop(type(keras.optimizers.RMSprop())):
    """Add epsilon to the square root, for all variables at once as Keras' own does on PyTorch."""

    def _parallel_update_step(self, grads: Any, variables: Any, learning_rate: Any) -> None:
        import torch

        velocities = [self._velocities[self._get_variable_index(v)].value for v in variables]
        torch._foreach_mul_(velocities, self.rho)
        torch._foreach_add_(velocities, torch._foreach_mul(grads, grads), alpha=1 - self.rho)
        roots = torch._foreach_add(torch._foreach_sqrt(velocities), self.epsilon)
        rate = ops.cast(learning_rate, grads[0].dtype)
        changes = torch._foreach_div(torch._foreach_mul(grads, rate), roots)
        torch._foreach_sub_([v.value for v in variables], changes)


def with_dense_gradients(optimizer: Any) -> Any:
    """Return an optimizer's class that makes each gradient a tensor of the variable's shape: before
    they are clipped, because the norm of the parts of a row is not that of their sum.
    """
    import tensorflow as tf

    class WithDenseGradients(optimizer):
        def _clip_gradients(self, grads: Any) -> Any:
            tensors = [tf.convert_to_tensor(grad) for grad in grads]
            return super()._clip_gradients(tensors)

    return WithDenseGradients
