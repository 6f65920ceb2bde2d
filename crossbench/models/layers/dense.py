"""Describe dense layers and dropouts, which take several shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...inputs.checks import Below1, Boolean, OptionalStd, Size
from ..parameters import GlorotUniform, Parameter, Shape, normal_or, weight_and_bias
from .layer import Layer


@dataclass(frozen=True)
class Dense(Layer):
    """Computes weight @ x + bias: (in,) to (features,), or at each place of a sequence: (L, in) to
    (L, features).

    bias: whether a number for each feature is added. std: Glorot's uniform by default.
    """

    features: Size
    bias: Boolean = True
    std: OptionalStd = None

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) not in (1, 2):
            raise ValueError(
                f"{self} takes a vector or a sequence, not the shape {input_shape}: Flatten first"
            )
        return (*input_shape[:-1], self.features)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        inputs = input_shape[-1]
        initializer = normal_or(GlorotUniform(inputs, self.features), self.std)
        return weight_and_bias(Parameter((self.features, inputs), initializer), self.bias)

    def forward_flops(self, input_shape: Shape) -> int:
        return 2 * math.prod(input_shape) * self.features


@dataclass(frozen=True)
class Dropout(Layer):
    """In training, sets each value to 0 with probability `rate` and divides the others by 1 - rate;
    in prediction, changes nothing.
    """

    rate: Below1
