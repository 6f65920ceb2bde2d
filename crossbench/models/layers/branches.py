"""Describe branches, which run side by side and are joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ...inputs.checks import LARGEST, one_of, tuple_of
from ..parameters import Shape
from .layer import OPTIONAL_LAYERS, Layer

ADD, MULTIPLY, CONCATENATE = JOINS = "add", "multiply", "concatenate"


@dataclass(frozen=True)
class Branches(Layer):
    """Joins the outputs of branches, which all have the same input; a branch without layers is the
    input itself.

    join: "add" and "multiply" take equal shapes, or an axis of 1 for all places of another
    branch's; "concatenate" puts channels (C, H, W) or features (F,), (L, F) behind one another, in
    the order of the branches.
    """

    branches: Annotated[
        tuple[tuple[Layer, ...], ...],
        tuple_of("two tuples of layers, or more", OPTIONAL_LAYERS, range(2, LARGEST)),
    ]
    join: Annotated[str, one_of(*JOINS)]

    def output_shape(self, input_shape: Shape) -> Shape:
        shapes = [_output_shape_through(layers, input_shape) for layers in self.branches]
        if len({len(shape) for shape in shapes}) == 1:
            sizes = [set(axis) for axis in zip(*shapes, strict=True)]
            if self.join == CONCATENATE:
                channels = 0 if len(sizes) == 3 else len(sizes) - 1
                sizes[channels] = {sum(shape[channels] for shape in shapes)}
            else:
                sizes = [{max(size)} if len(size - {1}) == 1 else size for size in sizes]
            if all(len(size) == 1 for size in sizes):
                return tuple(map(max, sizes))
        listed = " and ".join(map(str, shapes))
        raise ValueError(f"branches that give {listed} cannot be joined by {self.join}")


def Residual(body: tuple[Layer, ...], shortcut: tuple[Layer, ...] = ()) -> Branches:  # noqa: N802
    """Return the branches that add the outputs of a body and of a shortcut, which is the input
    itself by default (He et al., 2016).
    """
    return Branches((body, shortcut), ADD)


def _output_shape_through(layers: tuple[Layer, ...], shape: Shape) -> Shape:
    for layer in layers:
        shape = layer.output_shape(shape)
    return shape
