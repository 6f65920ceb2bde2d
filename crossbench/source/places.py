"""Says where a framework that has channels last holds a parameter, and with which axes.

Also says what its outputs are with channels first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..models import MultiHeadAttention, NamedLayer
from ..models.parameters import Shape

KERNEL_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (2, 3, 1, 0)}
"""Axes of a weight by their number: dense ones are (in, out), convolutions' (L, I, O) or (H, W, I,
O), and transposed ones' (H, W, O, I)."""


@dataclass(frozen=True)
class Place:
    """Says where a framework holds a canonical parameter, and how.

    path: what leads to it. shape: the canonical one. axes: the canonical axes in the framework's
    order. own_shape: the framework's, where it has split an axis.
    """

    path: str
    shape: Shape
    axes: tuple[int, ...]
    own_shape: Shape

    def to_framework(self, array: np.ndarray) -> np.ndarray:
        """Return the canonical array as the framework has it."""
        return array.transpose(self.axes).reshape(self.own_shape)

    def from_framework(self, array: np.ndarray) -> np.ndarray:
        """Return the canonical form of the framework's array, or of its gradient."""
        transposed = [self.shape[axis] for axis in self.axes]
        return array.reshape(transposed).transpose(np.argsort(self.axes))


def places(named: NamedLayer, path: Callable[[NamedLayer, str], str]) -> dict[str, Place]:
    """Return where a framework holds each parameter of a layer, by canonical name.

    path: says what leads to one, from the layer; that of a weight in KERNEL_AXES ends in "kernel".
    """
    found = {}
    for name, parameter in named.layer.parameters(named.input_shape).items():
        to, shape = path(named, name), parameter.shape
        is_kernel = to.endswith("kernel")
        axes = KERNEL_AXES[len(shape)] if is_kernel else tuple(range(len(shape)))
        found[name] = Place(to, shape, axes, _own_shape(named, name, shape, axes))
    return found


def _own_shape(named: NamedLayer, name: str, shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return the framework's shape: the joined features of an attention's heads are two axes."""
    own, layer = tuple(shape[axis] for axis in axes), named.layer
    if not isinstance(layer, MultiHeadAttention) or "norm" in name or name == "output_bias":
        return own
    joined, width = 0 if name == "output_weight" else len(own) - 1, layer.width(named.input_shape)
    return (*own[:joined], own[joined] // width, width, *own[joined + 1 :])


def channels_first(outputs: np.ndarray, shape: Shape) -> np.ndarray:
    """Return a framework's outputs as they are described. shape: that of an example's; pictures
    have their channels last in the framework.
    """
    return np.moveaxis(outputs, -1, -3) if len(shape) == 3 else outputs
