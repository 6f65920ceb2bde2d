"""Describe activations, which change each value alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ...inputs.checks import FINITE, Below1, Boolean, Over0
from ..parameters import Constant, Parameter, Shape
from .layer import Layer, channels

Finite = Annotated[float, FINITE]


@dataclass(frozen=True)
class ReLU(Layer):
    """Computes max(x, 0)."""

    corners = (0.0,)


@dataclass(frozen=True)
class ReLU6(Layer):
    """Computes min(max(x, 0), 6) (Krizhevsky, Convolutional Deep Belief Networks on CIFAR-10,
    2010).
    """

    corners = (0.0, 6.0)


@dataclass(frozen=True)
class LeakyReLU(Layer):
    """Computes x where it is over 0, and slope * x elsewhere (Maas, Hannun and Ng, 2013)."""

    slope: Below1

    corners = (0.0,)


@dataclass(frozen=True)
class PReLU(Layer):
    """Computes x where it is over 0, and slope * x elsewhere, with a trained slope that is 0.25 at
    first (He et al., 2015).

    per_channel: whether each channel of a picture, or each number of a vector, has a slope of its
    own; one slope is for all values by default, as in torch.
    """

    per_channel: Boolean = False

    corners = (0.0,)

    def output_shape(self, input_shape: Shape) -> Shape:
        if self.per_channel and len(input_shape) == 2:
            raise ValueError(f"{self} takes a picture or a vector, not the shape {input_shape}")
        return input_shape

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        slopes = channels(input_shape) if self.per_channel else 1
        return {"slope": Parameter((slopes,), Constant(0.25))}


@dataclass(frozen=True)
class ELU(Layer):
    """Computes x where it is over 0, and alpha * (exp(x) - 1) elsewhere (Clevert et al., 2016)."""

    alpha: Over0 = 1.0

    corners = (0.0,)  # its slope has no step where alpha is 1


@dataclass(frozen=True)
class Rescaling(Layer):
    """Computes scale * x + offset, as pictures are made to have a mean of 0."""

    scale: Finite
    offset: Finite = 0.0


@dataclass(frozen=True)
class GELU(Layer):
    """Computes x * Φ(x) = x / 2 * (1 + erf(x / sqrt(2))) (Hendrycks and Gimpel, 2016).

    Φ: the standard normal distribution function. tanh: compute the approximation of the same paper
    instead, x / 2 * (1 + tanh(sqrt(2 / π) * (x + 0.044715 * x³))), as GPT-2 does.
    """

    tanh: Boolean = False


@dataclass(frozen=True)
class SiLU(Layer):
    """Computes x * sigmoid(x) = x / (1 + exp(-x)) (Elfwing et al., 2018), also called swish."""


@dataclass(frozen=True)
class HardSwish(Layer):
    """Computes x * min(max(x + 3, 0), 6) / 6 (Howard et al., MobileNetV3, 2019)."""

    corners = (-3.0, 3.0)


@dataclass(frozen=True)
class Sigmoid(Layer):
    """Computes 1 / (1 + exp(-x)), the logistic function."""


@dataclass(frozen=True)
class Tanh(Layer):
    """Computes tanh(x) = (exp(x) - exp(-x)) / (exp(x) + exp(-x))."""


@dataclass(frozen=True)
class Softplus(Layer):
    """Computes log(1 + exp(x)) (Dugas et al., 2001).

    Over 20 torch takes x instead, which is at most 2e-9 less.
    """
