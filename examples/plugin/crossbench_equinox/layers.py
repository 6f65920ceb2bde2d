"""Define what Equinox lacks; the module of a training holds what it needs of it, word for word."""

# mypy: ignore-errors
from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp


class BatchNorm(eqx.nn.StatefulLayer):
    """Normalizes by the batch, and keeps running statistics with a variance over n - 1.

    eqx.nn.BatchNorm takes the variance over n, and divides both by 1 - momentum ** steps.
    """

    weight: jax.Array
    bias: jax.Array
    running: eqx.nn.StateIndex
    epsilon: float = eqx.field(static=True)
    momentum: float = eqx.field(static=True)
    inference: bool

    def __init__(self, features, epsilon, momentum):
        self.weight, self.bias = jnp.ones(features), jnp.zeros(features)
        self.running = eqx.nn.StateIndex((jnp.zeros(features), jnp.ones(features)))
        self.epsilon, self.momentum, self.inference = epsilon, momentum, False

    def __call__(self, x, state, *, key=None):
        running, x = state.get(self.running), x.T  # the channels are last
        mean, variance = running
        if not self.inference:
            axes = tuple(range(x.ndim - 1))
            mean = jax.lax.pmean(x.mean(axes), "batch")
            variance = jax.lax.pmean(((x - mean) ** 2).mean(axes), "batch")
            n = x[..., 0].size * jax.lax.axis_size("batch")
            batch, momentum = (mean, variance * n / (n - 1)), self.momentum
            moved = [momentum * r + (1 - momentum) * b for r, b in zip(running, batch, strict=True)]
            state = state.set(self.running, tuple(moved))
        y = self.weight * (x - mean) / jnp.sqrt(variance + self.epsilon) + self.bias
        return y.T, state


class Recurrent(eqx.Module):
    """Runs a cell, and a second one along the reversed sequence; returns their last outputs, or all
    of them.
    """

    cells: list
    sequences: bool = eqx.field(static=True, default=False)

    def __call__(self, xs, *, key=None):
        found = []
        for cell, reverse in zip(self.cells, (False, True), strict=False):
            zeros = jnp.zeros(cell.hidden_size)
            start = (zeros, zeros) if isinstance(cell, eqx.nn.LSTMCell) else zeros

            def step(state, x, cell=cell):
                state = cell(x, state)
                return state, jax.tree.leaves(state)[0]  # an LSTM's state is (output, cell)

            _, outputs = jax.lax.scan(step, start, xs, reverse=reverse)
            found.append(outputs if self.sequences else outputs[0 if reverse else -1])
        return jnp.concatenate(found, axis=-1)


def gru_cell(inputs, features, *, key):
    """Make a GRU's cell without the bias inside of the reset: what is no array is not trained."""
    cell = eqx.nn.GRUCell(inputs, features, key=key)
    return eqx.tree_at(lambda cell: cell.bias_n, cell, 0.0)


class Residual(eqx.nn.StatefulLayer):
    """Adds the outputs of the body and of the shortcut."""

    body: eqx.nn.Sequential
    shortcut: eqx.nn.Sequential

    def __call__(self, x, state, *, key=None):
        keys = (None, None) if key is None else jax.random.split(key)
        y, state = self.body(x, state, key=keys[0])
        z, state = self.shortcut(x, state, key=keys[1])
        return y + z, state
