"""Describe norms, and the scale of each channel.

The channels are those of a picture (C, H, W), or the features of a vector (F,), or of each place
of a sequence (L, F). affine: whether a norm multiplies each channel by a weight, 1 at first, and
adds a bias to it, 0 at first.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...inputs.checks import Below1, Boolean, NotNegative, Over0, Size
from ..parameters import Constant, Ones, Parameter, Shape, Zeros, weight_and_bias
from .layer import Layer, channels, require_image


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Computes weight * (x - mean) / sqrt(variance + epsilon) + bias for each channel: of (C, H, W)
    over the batch and the image, of (F,) over the batch, of (L, F) over the batch and the sequence.

    Training uses the mean and variance of the batch, with the variance divided by n. Prediction
    uses the running statistics, which training updates to momentum * running + (1 - momentum) *
    batch, with the variance divided by n - 1 (as in torch, Flux and TensorFlow's fused kernel).
    """

    epsilon: Over0
    momentum: Below1
    affine: Boolean = True

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        shape = (channels(input_shape),)
        statistics = {
            "running_mean": Parameter(shape, Zeros(), trained=False),
            "running_var": Parameter(shape, Ones(), trained=False),
        }
        return _affine(shape[0], self.affine) | statistics


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Computes weight * (x - mean) / sqrt(variance + epsilon) + bias over the channels of each
    example, with the variance divided by n (Ba et al., 2016): of (F,), or at each place of (L, F)
    or of (C, H, W), where ConvNeXt has it (Liu et al., 2022).

    bias: whether an affine one has a bias.
    """

    epsilon: Over0
    bias: Boolean = True
    affine: Boolean = True

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        return _affine(channels(input_shape), self.affine, self.bias)


@dataclass(frozen=True)
class RMSNorm(Layer):
    """Computes weight * x / sqrt(mean of x² + epsilon) over the channels of each example (Zhang and
    Sennrich, 2019): of (F,), or at each place of (L, F) or of (C, H, W). It has no bias.
    """

    epsilon: Over0
    affine: Boolean = True

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        return _affine(channels(input_shape), self.affine, bias=False)


@dataclass(frozen=True)
class GroupNorm(Layer):
    """Computes weight * (x - mean) / sqrt(variance + epsilon) + bias over each group of channels of
    an example (C, H, W), with the variance divided by n (Wu and He, 2018).

    A group has C / groups channels that follow one another. As many groups as channels make an
    instance norm (Ulyanov et al., 2016).
    """

    groups: Size
    epsilon: Over0
    affine: Boolean = True

    def output_shape(self, input_shape: Shape) -> Shape:
        count, *_ = require_image(self, input_shape)
        if count % self.groups:
            raise ValueError(f"{self} cannot share {count} channels among its groups")
        return input_shape

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        return _affine(channels(input_shape), self.affine)


@dataclass(frozen=True)
class Scale(Layer):
    """Computes weight * x, with a weight for each channel: the LayerScale of CaiT (Touvron et al.,
    2021). initial: the weights' initial value.
    """

    initial: NotNegative = 1.0

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        return {"weight": Parameter((channels(input_shape),), Constant(self.initial))}


def _affine(count: int, affine: bool, bias: bool = True) -> dict[str, Parameter]:
    """Return the weight and the bias of so many channels, or none for a norm that is not affine."""
    return weight_and_bias(Parameter((count,), Ones()), bias) if affine else {}
