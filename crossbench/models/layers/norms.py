"""Describe batch, layer and RMS norms."""

from __future__ import annotations

from dataclasses import dataclass

from ...inputs.checks import Below1, Boolean, Over0
from ..parameters import Ones, Parameter, Shape, Zeros, weight_and_bias
from .layer import Layer


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Computes weight * (x - mean) / sqrt(variance + epsilon) + bias for each channel: of (C, H, W)
    over the batch and the image, of (F,) over the batch.

    Training uses the mean and variance of the batch, with the variance divided by n. Prediction
    uses the running statistics, which training updates to momentum * running + (1 - momentum) *
    batch, with the variance divided by n - 1 (as in torch, Flux and TensorFlow's fused kernel).
    """

    epsilon: Over0
    momentum: Below1

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        shape = input_shape[:1]
        return {
            "weight": Parameter(shape, Ones()),
            "bias": Parameter(shape, Zeros()),
            "running_mean": Parameter(shape, Zeros(), trained=False),
            "running_var": Parameter(shape, Ones(), trained=False),
        }


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Computes weight * (x - mean) / sqrt(variance + epsilon) + bias over the last axis of each
    example, with the variance divided by n (Ba et al., 2016): of (F,), or at each place of (L, F).

    bias: whether it has one.
    """

    epsilon: Over0
    bias: Boolean = True

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        return weight_and_bias(Parameter(input_shape[-1:], Ones()), self.bias)


@dataclass(frozen=True)
class RMSNorm(Layer):
    """Computes weight * x / sqrt(mean of x² + epsilon) over the last axis of each example (Zhang
    and Sennrich, 2019): of (F,), or at each place of (L, F).
    """

    epsilon: Over0

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        return {"weight": Parameter(input_shape[-1:], Ones())}
