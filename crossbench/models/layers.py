"""Layers without a framework: what they compute, their shapes, parameters and FLOPs.

Shapes leave out the batch axis. Images are (channels, height, width), sequences (length, features),
or (length,) where they are numbers of a vocabulary, from 0. Parameters have one canonical form,
torch's axis order: a convolution's kernel is (out, in, height, width) and slides without flipping;
a dense weight is (out, in).

To add a layer: a frozen dataclass here, and its translation in each adapter. Its annotations name
the rules that its fields are checked by (crossbench/checks.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..checks import LARGEST, Below1, Checked, Over0, Pair, PairFrom0, Size, Truth, one_of, several

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Zeros:
    """Initial values of 0."""

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.zeros(shape, np.float32)


@dataclass(frozen=True)
class Ones:
    """Initial values of 1."""

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.ones(shape, np.float32)


@dataclass(frozen=True)
class Uniform:
    """Uniform in ±bound."""

    bound: float

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return random.uniform(-self.bound, self.bound, shape).astype(np.float32)


@dataclass(frozen=True)
class Orthogonal:
    """Orthonormal columns: Keras' default of recurrent weights (Saxe et al., 2013)."""

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        q, r = np.linalg.qr(random.standard_normal(shape))
        return (q * np.sign(np.diag(r))).astype(np.float32)


@dataclass(frozen=True)
class ForgetGateOnes:
    """Of an LSTM's bias: 1 for the forget gate, the second of four, 0 for the others: Keras'
    default (Jozefowicz et al., 2015).
    """

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.repeat(np.array([0, 1, 0, 0], np.float32), shape[0] // 4)


@dataclass(frozen=True)
class GlorotUniform:
    """Uniform in ±sqrt(6 / (fan_in + fan_out)): Flux's default (Glorot and Bengio, 2010)."""

    fan_in: int
    fan_out: int

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        bound = math.sqrt(6 / (self.fan_in + self.fan_out))
        return random.uniform(-bound, bound, shape).astype(np.float32)


Initial = Zeros | Ones | Uniform | Orthogonal | ForgetGateOnes | GlorotUniform


@dataclass(frozen=True)
class Parameter:
    """One array of a layer: its canonical shape, where its values start, and whether the optimizer
    changes them; what it does not change (a batch norm's running statistics) changes by itself.
    """

    shape: Shape
    initial: Initial
    trained: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Layer(Checked):
    """One layer. The defaults are those of a layer without parameters that keeps the shape."""

    def output_shape(self, input_shape: Shape) -> Shape:
        """The shape after this layer; ValueError where the input does not fit it."""
        return input_shape

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        """The layer's parameters by name ("weight", "bias")."""
        return {}

    def forward_flops(self, input_shape: Shape) -> int:
        """Floating-point operations for one example, a multiply-add counted as two.

        Only the products are counted, as is the custom: biases, activations and pools are not.
        """
        return 0

    def input_gradient_flops(self, input_shape: Shape) -> int:
        """Those of the backward pass that only the gradient with respect to the input needs."""
        return self.forward_flops(input_shape)

    def training_flops(self, input_shape: Shape, input_gradient: bool) -> int:
        """Forward and backward: the products once more for the parameters' gradient, and once more
        for the input's, where a layer before needs it.
        """
        needless = 0 if input_gradient else self.input_gradient_flops(input_shape)
        return 3 * self.forward_flops(input_shape) - needless


LAYERS = several("a tuple of layers, at least one", one_of("a layer", Layer), range(1, LARGEST))
Layers = Annotated[tuple[Layer, ...], LAYERS]
AnyLayers = Annotated[
    tuple[Layer, ...], several("a tuple of layers", one_of("a layer", Layer), range(LARGEST))
]


@dataclass(frozen=True)
class Conv(Layer):
    """2-D cross-correlation with zero padding on both sides: (C, H, W) to (features, H', W')."""

    features: Size
    kernel: Pair
    stride: Pair = (1, 1)
    padding: PairFrom0 = (0, 0)

    def output_shape(self, input_shape: Shape) -> Shape:
        _, *size = _image(self, input_shape)
        return (self.features, *_windows(self, size, self.kernel, self.stride, self.padding))

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        channels = input_shape[0]
        area = math.prod(self.kernel)
        initial = GlorotUniform(channels * area, self.features * area)
        return {
            "weight": Parameter((self.features, channels, *self.kernel), initial),
            "bias": Parameter((self.features,), Zeros()),
        }

    def forward_flops(self, input_shape: Shape) -> int:
        per_output = 2 * input_shape[0] * math.prod(self.kernel)
        return per_output * math.prod(self.output_shape(input_shape))


@dataclass(frozen=True)
class MaxPool(Layer):
    """The maximum of each window, without padding: (C, H, W) to (C, H', W')."""

    window: Pair
    stride: Pair

    def output_shape(self, input_shape: Shape) -> Shape:
        channels, *size = _image(self, input_shape)
        return (channels, *_windows(self, size, self.window, self.stride, (0, 0)))


@dataclass(frozen=True)
class ReLU(Layer):
    """max(x, 0)."""


@dataclass(frozen=True)
class Flatten(Layer):
    """All axes into one, the last running fastest: (C, H, W) to (C * H * W,)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return (math.prod(input_shape),)


@dataclass(frozen=True)
class Dense(Layer):
    """weight @ x + bias: (in,) to (features,)."""

    features: Size

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 1:
            raise ValueError(f"{self} takes a vector, not the shape {input_shape}: Flatten first")
        return (self.features,)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        (inputs,) = input_shape
        return {
            "weight": Parameter((self.features, inputs), GlorotUniform(inputs, self.features)),
            "bias": Parameter((self.features,), Zeros()),
        }

    def forward_flops(self, input_shape: Shape) -> int:
        return 2 * input_shape[0] * self.features


@dataclass(frozen=True)
class BatchNorm(Layer):
    """weight * (x - mean) / sqrt(variance + epsilon) + bias, channel by channel: of (C, H, W) over
    the batch and the picture, of (F,) over the batch.

    In training mean and variance are the batch's, the variance divided by n. The running ones,
    which serve in prediction, become momentum * running + (1 - momentum) * the batch's, where the
    variance is divided by n - 1 (torch, Flux and TensorFlow's fused kernel do so).
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
class Dropout(Layer):
    """In training each value is 0 with probability `rate`, else divided by 1 - rate; in prediction
    nothing changes.
    """

    rate: Below1


@dataclass(frozen=True)
class GlobalAveragePool(Layer):
    """The mean of each channel of a picture (C, H, W), or of each feature of a sequence (L, F)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) == 2:
            return input_shape[1:]
        return _image(self, input_shape)[:1]


@dataclass(frozen=True)
class Embedding(Layer):
    """A row of the weight (vocabulary, features) for each number: (L,) to (L, features)."""

    vocabulary: Size
    features: Size

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*_numbers(self, input_shape), self.features)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        return {"weight": Parameter((self.vocabulary, self.features), Uniform(0.05))}


@dataclass(frozen=True)
class OneHot(Layer):
    """1 at the place of each number, else 0: (L,) to (L, vocabulary)."""

    vocabulary: Size

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*_numbers(self, input_shape), self.vocabulary)


@dataclass(frozen=True)
class Recurrent(Layer):
    """A cell that goes along a sequence, from a state of 0; its last output: (L, F) to (features,).

    Each of its gates has features rows of weight_ih (for the input), weight_hh (for the last
    output) and bias, in the order of the gates. Bidirectional: a second cell goes from the end to
    the start, its parameters end in _reverse, and its last output follows the first's.
    """

    features: Size
    bidirectional: Truth = False

    def output_shape(self, input_shape: Shape) -> Shape:
        _sequence(self, input_shape)
        return (self._directions * self.features,)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        rows, (_, inputs) = self._gates * self.features, input_shape
        one = {
            "weight_ih": Parameter((rows, inputs), GlorotUniform(inputs, rows)),
            "weight_hh": Parameter((rows, self.features), Orthogonal()),
            "bias": Parameter((rows,), self._initial_bias),
        }
        other = {f"{name}_reverse": parameter for name, parameter in one.items()}
        return one | other if self.bidirectional else one

    def forward_flops(self, input_shape: Shape) -> int:
        _, inputs = input_shape
        return self.input_gradient_flops(input_shape) * (inputs + self.features) // inputs

    def input_gradient_flops(self, input_shape: Shape) -> int:
        length, inputs = input_shape
        return self._directions * 2 * length * self._gates * self.features * inputs

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _gates(self) -> int:
        raise NotImplementedError

    @property
    def _initial_bias(self) -> Initial:
        return Zeros()


@dataclass(frozen=True)
class LSTM(Recurrent):
    """Gates input, forget, cell, output: c = sigmoid(f) * c + sigmoid(i) * tanh(g);
    h = sigmoid(o) * tanh(c) (Hochreiter and Schmidhuber, 1997; Gers et al., 2000).
    """

    @property
    def _gates(self) -> int:
        return 4

    @property
    def _initial_bias(self) -> Initial:
        return ForgetGateOnes()


@dataclass(frozen=True)
class GRU(Recurrent):
    """Gates reset, update, new: n = tanh(W x + b + sigmoid(r) * (U h)); h = (1 - sigmoid(z)) * n
    + sigmoid(z) * h. One bias a gate; cuDNN's form has another inside the reset.
    """

    @property
    def _gates(self) -> int:
        return 3


@dataclass(frozen=True)
class Residual(Layer):
    """The sum of two ways from the input: the layers of the body, and those of the shortcut (none:
    the input itself).
    """

    body: Layers
    shortcut: AnyLayers = ()

    def output_shape(self, input_shape: Shape) -> Shape:
        ways = [_through(layers, input_shape) for layers in (self.body, self.shortcut)]
        if ways[0] != ways[1]:
            raise ValueError(f"a residual's body gives {ways[0]}, its shortcut {ways[1]}")
        return ways[0]


def _through(layers: tuple[Layer, ...], shape: Shape) -> Shape:
    for layer in layers:
        shape = layer.output_shape(shape)
    return shape


def _numbers(layer: Layer, shape: Shape) -> Shape:
    if len(shape) != 1:
        raise ValueError(f"{layer} takes (length,) numbers, not the shape {shape}")
    return shape


def _sequence(layer: Layer, shape: Shape) -> Shape:
    if len(shape) != 2:
        raise ValueError(f"{layer} takes (length, features), not the shape {shape}")
    return shape


def _image(layer: Layer, shape: Shape) -> Shape:
    if len(shape) != 3:
        raise ValueError(f"{layer} takes (channels, height, width), not the shape {shape}")
    return shape


def _windows(
    layer: Layer,
    size: list[int],
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Shape:
    """How many windows fit along each axis; a remainder at the end is not covered."""
    counts = tuple(
        (n + 2 * p - w) // s + 1 for n, w, s, p in zip(size, window, stride, padding, strict=True)
    )
    if min(counts) < 1:
        raise ValueError(f"{layer} does not fit into an image of {size[0]} x {size[1]}")
    return counts
