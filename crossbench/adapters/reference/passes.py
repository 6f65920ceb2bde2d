"""Define one pass through a model: what it reads and computes, and how a layer takes part in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial, singledispatch

import numpy as np

from ... import models
from ...models.model import NamedLayer, Weights
from .rounding import Rounding

Backward = Callable[[np.ndarray], np.ndarray]
"""Maps the output's gradient to the input's, and adds the parameters' to Pass.gradients."""
Outcome = tuple[np.ndarray, Backward]
"""The output of a layer, and its backward pass."""
SEED = 0
"""Seed of the dropout masks."""


@dataclass
class Pass:
    """Hold what one pass through the model, forward and perhaps backward, reads and computes.

    weights: the parameters before the pass, by full name ("conv1.weight").
    masks: the dropout masks by the dropout's name; None to draw them with `random`.
    running: the running statistics after the pass, by full name.
    near_ties: how many windows of max-pools had near ties: two values so close that a framework may
        give the gradient to either.
    near_zero: how far the step in the slope of an activation, at 0 in a ReLU, is moved, as a
        multiple of the root mean square of the inputs plus the size of the input that it is at; 0
        but for what rounding may do.
    rounding: what is rounded; None for nothing.
    """

    weights: Weights
    training: bool
    masks: Mapping[str, np.ndarray] | None = None
    random: np.random.Generator = field(default_factory=partial(np.random.default_rng, SEED))
    gradients: Weights = field(default_factory=dict)
    running: Weights = field(default_factory=dict)
    near_ties: int = 0
    near_zero: float = 0.0
    rounding: Rounding | None = None

    def operands(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Return the operands of a matrix multiplication or convolution in its precision."""
        if self.rounding is None:
            return list(arrays)
        return [self.rounding.operand(array) for array in arrays]

    def activation(self, array: np.ndarray) -> np.ndarray:
        """Return an activation, or a gradient, in the precision in which it is stored."""
        return array if self.rounding is None else self.rounding.activation(array)

    def parameters(self, named: NamedLayer) -> Weights:
        """Return the layer's parameters by their short name ("weight")."""
        prefix = f"{named.name}."
        return {name.removeprefix(prefix): self.weights[name] for name in named.parameters}

    def add_gradients(self, named: NamedLayer, **gradients: np.ndarray) -> None:
        """Add to the gradients of the layer's parameters, given by their short name."""
        for name, gradient in gradients.items():
            self.add_to(f"{named.name}.{name}", gradient)

    def add_to(self, name: str, gradient: np.ndarray) -> None:
        """Add to the gradient of a parameter, which another layer may have added to before."""
        gradient, before = self.activation(gradient), self.gradients.get(name)
        self.gradients[name] = gradient if before is None else before + gradient


@singledispatch
def forward(layer: models.Layer, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    """Return the layer's output for `x`, (batch, *input_shape), and its backward pass."""
    raise NotImplementedError(
        f"the NumPy reference does not support the layer {type(layer).__name__}"
    )


def forward_all(layers: Iterable[NamedLayer], x: np.ndarray, run: Pass) -> Outcome:
    """Return the output of all layers, in order, and their backward pass."""
    backwards = []
    for named in layers:
        x, backward = forward(named.layer, named, x, run)
        x = run.activation(x)
        backwards.append(backward)

    def back(dy: np.ndarray) -> np.ndarray:
        for backward in reversed(backwards):
            dy = run.activation(backward(dy))
        return dy

    return x, back


def channel_axis(x: np.ndarray) -> int:
    """Return the axis of the channels of pictures, or of the features of vectors or sequences."""
    return 2 if x.ndim == 3 else 1


def channels_first(x: np.ndarray) -> np.ndarray:
    """Return sequences (batch, length, features) as (batch, features, length), and back; pictures
    and vectors as they are.
    """
    return x.swapaxes(1, 2) if x.ndim == 3 else x


def along_channels(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return values of channels, or one for all, with the axes of x (batch, channels, ...)."""
    return values.reshape(-1, *[1] * (x.ndim - 2))


def sum_float64(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Sum in float64: NumPy's own sums over outer axes are inaccurate in float32."""
    return x.sum(axes, dtype=np.float64).astype(x.dtype)


def sum_in_order(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Sum a gradient's terms, in float32 one after the other, as a framework may: the rounding of
    equal terms adds up. Over 230,000 of a depthwise convolution's bias it is 8e-4 of the sum.
    """
    if x.dtype != np.float32:
        return x.sum(axes)
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    terms = x.transpose(*axes, *rest).reshape(-1, *(x.shape[axis] for axis in rest))
    return np.cumsum(terms, axis=0, dtype=np.float32)[-1]
