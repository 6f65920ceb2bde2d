"""Describe layers without a framework: what they compute, their shapes, parameters and FLOPs.

Shapes leave out the batch axis. Images are (channels, height, width), sequences (length, features),
token ids (length,) from 0. Parameters have one canonical form, torch's axis order: a convolution's
kernel is (out, in, height, width) and is not flipped; a dense weight is (out, in). A std is the
standard deviation of a weight's normal initial values, with the mean 0; None leaves its default.

To add a layer, write a frozen dataclass here and its translation in each adapter. Its annotations
name the rules that check its fields (crossbench/inputs/checks.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from ..inputs.checks import (
    LARGEST,
    Below1,
    Boolean,
    Checked,
    OptionalStd,
    Over0,
    Pair,
    PairFrom0,
    Size,
    instance_of,
    tuple_of,
)
from .parameters import (
    ForgetGateOnes,
    GlorotUniform,
    Initializer,
    Normal,
    Ones,
    Orthogonal,
    Parameter,
    Shape,
    Uniform,
    Zeros,
)


class Layer(Checked):
    """Describes a layer; by default one that has no parameters and keeps the shape."""

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
OptionalLayers = Annotated[
    tuple[Layer, ...], tuple_of("a tuple of layers", instance_of("a layer", Layer), range(LARGEST))
]


@dataclass(frozen=True)
class Conv(Layer):
    """Cross-correlates in 2-D, zero-padded on both sides: (C, H, W) to (features, H', W').

    bias: whether a number for each feature is added. std: Glorot's uniform by default.
    """

    features: Size
    kernel: Pair
    stride: Pair = (1, 1)
    padding: PairFrom0 = (0, 0)
    bias: Boolean = True
    std: OptionalStd = None

    def output_shape(self, input_shape: Shape) -> Shape:
        _, *size = _require_image(self, input_shape)
        return (self.features, *_count_windows(self, size, self.kernel, self.stride, self.padding))

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        channels = input_shape[0]
        area = math.prod(self.kernel)
        initializer = _glorot_or_normal(channels * area, self.features * area, self.std)
        weight = Parameter((self.features, channels, *self.kernel), initializer)
        bias = {"bias": Parameter((self.features,), Zeros())} if self.bias else {}
        return {"weight": weight} | bias

    def forward_flops(self, input_shape: Shape) -> int:
        per_output_value = 2 * input_shape[0] * math.prod(self.kernel)
        return per_output_value * math.prod(self.output_shape(input_shape))


@dataclass(frozen=True)
class MaxPool(Layer):
    """Takes the maximum of each window, without padding: (C, H, W) to (C, H', W')."""

    window: Pair
    stride: Pair

    def output_shape(self, input_shape: Shape) -> Shape:
        channels, *size = _require_image(self, input_shape)
        return (channels, *_count_windows(self, size, self.window, self.stride, (0, 0)))


@dataclass(frozen=True)
class ReLU(Layer):
    """Computes max(x, 0)."""


@dataclass(frozen=True)
class GELU(Layer):
    """Computes x * Φ(x) = x / 2 * (1 + erf(x / sqrt(2))) (Hendrycks and Gimpel, 2016).

    Φ: the standard normal distribution function. tanh: compute the approximation of the same paper
    instead, x / 2 * (1 + tanh(sqrt(2 / π) * (x + 0.044715 * x³))), as GPT-2 does.
    """

    tanh: Boolean = False


@dataclass(frozen=True)
class Flatten(Layer):
    """Joins all axes into one, the last running fastest: (C, H, W) to (C * H * W,)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return (math.prod(input_shape),)


@dataclass(frozen=True)
class ToSequence(Layer):
    """Makes a sequence of an image's places, row by row: (C, H, W) to (H * W, C)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        channels, height, width = _require_image(self, input_shape)
        return (height * width, channels)


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
        initializer = _glorot_or_normal(inputs, self.features, self.std)
        weight = Parameter((self.features, inputs), initializer)
        bias = {"bias": Parameter((self.features,), Zeros())} if self.bias else {}
        return {"weight": weight} | bias

    def forward_flops(self, input_shape: Shape) -> int:
        return 2 * math.prod(input_shape) * self.features


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
        shape = input_shape[-1:]
        bias = {"bias": Parameter(shape, Zeros())} if self.bias else {}
        return {"weight": Parameter(shape, Ones())} | bias


@dataclass(frozen=True)
class RMSNorm(Layer):
    """Computes weight * x / sqrt(mean of x² + epsilon) over the last axis of each example (Zhang
    and Sennrich, 2019): of (F,), or at each place of (L, F).
    """

    epsilon: Over0

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        return {"weight": Parameter(input_shape[-1:], Ones())}


@dataclass(frozen=True)
class Dropout(Layer):
    """In training, sets each value to 0 with probability `rate` and divides the others by 1 - rate;
    in prediction, changes nothing.
    """

    rate: Below1


@dataclass(frozen=True)
class GlobalAveragePool(Layer):
    """Takes the mean of each channel of an image (C, H, W) or feature of a sequence (L, F)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) == 2:
            return input_shape[1:]
        return _require_image(self, input_shape)[:1]


@dataclass(frozen=True)
class Embedding(Layer):
    """Looks up the weight's (vocabulary, features) row of each token id: (L,) to (L, features).

    std: uniform in ±0.05 by default.
    """

    vocabulary: Size
    features: Size
    std: OptionalStd = None

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*_require_token_ids(self, input_shape), self.features)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        initializer = Uniform(0.05) if self.std is None else Normal(self.std)
        return {"weight": Parameter((self.vocabulary, self.features), initializer)}


@dataclass(frozen=True)
class Unembedding(Layer):
    """Computes weight @ x at each place, with the weight of the model's Embedding, which is its
    first layer (tied weights; Press and Wolf, 2017): (L, F) to (L, vocabulary).
    """

    vocabulary: Size

    def output_shape(self, input_shape: Shape) -> Shape:
        return (_require_sequence(self, input_shape)[0], self.vocabulary)

    def forward_flops(self, input_shape: Shape) -> int:
        return 2 * math.prod(input_shape) * self.vocabulary


@dataclass(frozen=True)
class PositionEmbedding(Layer):
    """Adds the weight's (L, F) row of each place: (L, F) to (L, F). std: uniform in ±0.05 by
    default.
    """

    std: OptionalStd = None

    def output_shape(self, input_shape: Shape) -> Shape:
        return _require_sequence(self, input_shape)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        initializer = Uniform(0.05) if self.std is None else Normal(self.std)
        return {"weight": Parameter(input_shape, initializer)}


@dataclass(frozen=True)
class ClassToken(Layer):
    """Puts the weight (F,), the same for all examples, before a sequence (Devlin et al., 2019):
    (L, F) to (L + 1, F). std: zeros by default.
    """

    std: OptionalStd = None

    def output_shape(self, input_shape: Shape) -> Shape:
        length, features = _require_sequence(self, input_shape)
        return (length + 1, features)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        initializer = Zeros() if self.std is None else Normal(self.std)
        return {"weight": Parameter(input_shape[-1:], initializer)}


@dataclass(frozen=True)
class FirstOfSequence(Layer):
    """Takes the first place of a sequence: (L, F) to (F,)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return _require_sequence(self, input_shape)[1:]


@dataclass(frozen=True)
class MultiHeadAttention(Layer):
    """Computes softmax(q k' / sqrt(D)) v in each head, with the heads' results joined and then
    projected (self-attention; Vaswani et al., 2017): (L, F) to (L, F).

    q, k and v are x projected by query_weight, key_weight and value_weight, each (F, F); head h has
    the features from h * D to (h + 1) * D, where D = F / heads. output_weight (F, F) projects the
    joined heads. causal: a place attends to itself and those before it alone. bias: whether each
    projection has one. std, output_std: of the first three weights and of the last; Glorot's
    uniform by default.
    """

    heads: Size
    causal: Boolean
    bias: Boolean = True
    std: OptionalStd = None
    output_std: OptionalStd = None

    def output_shape(self, input_shape: Shape) -> Shape:
        _, features = _require_sequence(self, input_shape)
        if features % self.heads:
            raise ValueError(f"{self} cannot share {features} features among its heads")
        return input_shape

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        features = input_shape[-1]
        stds = dict.fromkeys(("query", "key", "value"), self.std) | {"output": self.output_std}
        found = {}
        for name, std in stds.items():
            initializer = _glorot_or_normal(features, features, std)
            found[f"{name}_weight"] = Parameter((features, features), initializer)
            if self.bias:
                found[f"{name}_bias"] = Parameter((features,), Zeros())
        return found

    def forward_flops(self, input_shape: Shape) -> int:
        """Count the products with a causal mask whole, masked values too (as the PaLM paper, 2022,
        appendix B, does).
        """
        length, features = input_shape
        return 2 * length * features * (4 * features + 2 * length)

    def input_gradient_flops(self, input_shape: Shape) -> int:
        length, features = input_shape
        return 3 * 2 * length * features * features  # of x before its three projections


@dataclass(frozen=True)
class OneHot(Layer):
    """Sets 1 at the index of each token id, else 0: (L,) to (L, vocabulary)."""

    vocabulary: Size

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*_require_token_ids(self, input_shape), self.vocabulary)


@dataclass(frozen=True)
class Recurrent(Layer):
    """Runs a cell along a sequence from a state of 0, to its last output: (L, F) to (features,).

    Each gate has `features` rows of weight_ih (for the input), weight_hh (for the previous output)
    and bias, in the order of the gates. bidirectional: a second cell runs from the end to the
    start; its parameters' names end in _reverse, and its last output is appended to the first's.
    """

    features: Size
    bidirectional: Boolean = False

    def output_shape(self, input_shape: Shape) -> Shape:
        _require_sequence(self, input_shape)
        return (self._directions * self.features,)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        rows, (_, inputs) = self._gates * self.features, input_shape
        forward = {
            "weight_ih": Parameter((rows, inputs), GlorotUniform(inputs, rows)),
            "weight_hh": Parameter((rows, self.features), Orthogonal()),
            "bias": Parameter((rows,), self._bias_initializer),
        }
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

    @property
    def _gates(self) -> int:
        raise NotImplementedError

    @property
    def _bias_initializer(self) -> Initializer:
        return Zeros()


@dataclass(frozen=True)
class LSTM(Recurrent):
    """Computes c = sigmoid(f) * c + sigmoid(i) * tanh(g); h = sigmoid(o) * tanh(c) (Hochreiter and
    Schmidhuber, 1997; Gers et al., 2000). The gates' order is input i, forget f, cell g, output o.
    """

    @property
    def _gates(self) -> int:
        return 4

    @property
    def _bias_initializer(self) -> Initializer:
        return ForgetGateOnes()


@dataclass(frozen=True)
class GRU(Recurrent):
    """Computes n = tanh(W x + b + sigmoid(r) * (U h)); h = (1 - sigmoid(z)) * n + sigmoid(z) * h.

    The gates' order is reset r, update z, new n. Each gate has one bias; cuDNN's form has a second
    one inside the reset.
    """

    @property
    def _gates(self) -> int:
        return 3


@dataclass(frozen=True)
class Residual(Layer):
    """Adds the outputs of two branches: the body's layers, and the shortcut's (by default none: the
    input itself).
    """

    body: Layers
    shortcut: OptionalLayers = ()

    def output_shape(self, input_shape: Shape) -> Shape:
        body, shortcut = (
            _output_shape_through(layers, input_shape) for layers in (self.body, self.shortcut)
        )
        if body != shortcut:
            raise ValueError(f"a residual's body gives {body}, its shortcut {shortcut}")
        return body


def _output_shape_through(layers: tuple[Layer, ...], shape: Shape) -> Shape:
    for layer in layers:
        shape = layer.output_shape(shape)
    return shape


def _glorot_or_normal(fan_in: int, fan_out: int, std: float | None) -> Initializer:
    return GlorotUniform(fan_in, fan_out) if std is None else Normal(std)


def _require_token_ids(layer: Layer, shape: Shape) -> Shape:
    if len(shape) != 1:
        raise ValueError(f"{layer} takes token ids (length,), not the shape {shape}")
    return shape


def _require_sequence(layer: Layer, shape: Shape) -> Shape:
    if len(shape) != 2:
        raise ValueError(f"{layer} takes (length, features), not the shape {shape}")
    return shape


def _require_image(layer: Layer, shape: Shape) -> Shape:
    if len(shape) != 3:
        raise ValueError(f"{layer} takes (channels, height, width), not the shape {shape}")
    return shape


def _count_windows(
    layer: Layer,
    size: list[int],
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Shape:
    """Return the number of windows along each axis; a remainder at the end is left out."""
    counts = tuple(
        (n + 2 * p - w) // s + 1 for n, w, s, p in zip(size, window, stride, padding, strict=True)
    )
    if min(counts) < 1:
        raise ValueError(f"{layer} does not fit into an image of {size[0]} x {size[1]}")
    return counts
