"""Describe recurrent layers: LSTM and GRU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...inputs.checks import Boolean, Size
from ..parameters import (
    ForgetGateOnes,
    GlorotUniform,
    Initializer,
    Orthogonal,
    Parameter,
    Shape,
    Zeros,
)
from .layer import Layer, require_sequence


@dataclass(frozen=True)
class Recurrent(Layer):
    """Runs a cell along a sequence from a state of 0, to its last output: (L, F) to (features,).

    Each gate has `features` rows of weight_ih (for the input), weight_hh (for the previous output)
    and bias, in the order of the gates. bidirectional: a second cell runs from the end to the
    start; its parameters' names end in _reverse, and its last output is appended to the first's.

    sequences: return all outputs, (L, features): those of the second cell too are at the place of
    their input. both_biases: the previous output has a second bias, bias_hh, as in cuDNN.
    """

    features: Size
    bidirectional: Boolean = False
    sequences: Boolean = False
    both_biases: Boolean = False
    _gates: ClassVar[int]
    _bias_initializer: ClassVar[Initializer] = Zeros()

    def output_shape(self, input_shape: Shape) -> Shape:
        length, _ = require_sequence(self, input_shape)
        outputs = self._directions * self.features
        return (length, outputs) if self.sequences else (outputs,)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        rows, (_, inputs) = self._gates * self.features, input_shape
        forward = {
            "weight_ih": Parameter((rows, inputs), GlorotUniform(inputs, rows)),
            "weight_hh": Parameter((rows, self.features), Orthogonal()),
            "bias": Parameter((rows,), self._bias_initializer),
        }
        if self.both_biases:
            forward["bias_hh"] = Parameter((rows,), Zeros())
        reverse = {f"{name}_reverse": parameter for name, parameter in forward.items()}
        return forward | reverse if self.bidirectional else forward

    def forward_flops(self, input_shape: Shape) -> int:
        _, inputs = input_shape
        return self.input_gradient_flops(input_shape) * (inputs + self.features) // inputs

    def input_gradient_flops(self, input_shape: Shape) -> int:
        length, inputs = input_shape
        return self._directions * 2 * length * self._gates * self.features * inputs

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1


@dataclass(frozen=True)
class LSTM(Recurrent):
    """Computes c = sigmoid(f) * c + sigmoid(i) * tanh(g); h = sigmoid(o) * tanh(c) (Hochreiter and
    Schmidhuber, 1997; Gers et al., 2000). The gates' order is input i, forget f, cell g, output o.

    both_biases: they add up, as PyTorch has them.
    """

    _gates: ClassVar[int] = 4
    _bias_initializer: ClassVar[Initializer] = ForgetGateOnes()


@dataclass(frozen=True)
class GRU(Recurrent):
    """Computes n = tanh(W x + b + sigmoid(r) * (U h)); h = (1 - sigmoid(z)) * n + sigmoid(z) * h.

    The gates' order is reset r, update z, new n. both_biases: U h + bias_hh, inside of the reset.
    """

    _gates: ClassVar[int] = 3
