"""Defines what every layer describes, the rules for layers, and the shapes that they may take."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ...inputs.checks import LARGEST, Checked, instance_of, tuple_of
from ..parameters import Parameter, Shape


class Layer(Checked):
    """Describes a layer; by default one that has no parameters and keeps the shape."""

    corners: ClassVar[tuple[float, ...]] = ()
    """The inputs at which the slope of an activation has a step."""

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape after this layer; raise ValueError if the input does not fit it."""
        return input_shape

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        """Return the layer's parameters by name ("weight", "bias")."""
        return {}

    def forward_flops(self, input_shape: Shape) -> int:
        """Return the floating-point operations for one example, a multiply-add counted as two.

        Only matrix multiplications and convolutions are counted, as usual: biases, activations and
        pools are not.
        """
        return 0

    def input_gradient_flops(self, input_shape: Shape) -> int:
        """Return the FLOPs of the backward pass that only the input's gradient needs."""
        return self.forward_flops(input_shape)

    def training_flops(self, input_shape: Shape, input_gradient: bool) -> int:
        """Return the FLOPs of the forward and backward pass for one example.

        The backward pass takes as many as the forward pass for the parameters' gradient, and as
        many again for the input's. input_gradient: whether a layer before needs the latter.
        """
        skipped = 0 if input_gradient else self.input_gradient_flops(input_shape)
        return 3 * self.forward_flops(input_shape) - skipped


LAYERS = tuple_of(
    "a tuple of layers, at least one", instance_of("a layer", Layer), range(1, LARGEST)
)
Layers = Annotated[tuple[Layer, ...], LAYERS]
OPTIONAL_LAYERS = tuple_of("a tuple of layers", instance_of("a layer", Layer), range(LARGEST))


def require_sequence(layer: Layer, shape: Shape) -> Shape:
    if len(shape) != 2:
        raise ValueError(f"{layer} takes (length, features), not the shape {shape}")
    return shape


def channels(shape: Shape) -> int:
    """Return the number of a picture's channels, or of the features of a vector, or of each place
    of a sequence.
    """
    return shape[0] if len(shape) == 3 else shape[-1]


def require_image(layer: Layer, shape: Shape) -> Shape:
    if len(shape) != 3:
        raise ValueError(f"{layer} takes (channels, height, width), not the shape {shape}")
    return shape
