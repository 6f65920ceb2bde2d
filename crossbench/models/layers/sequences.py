"""Describe embeddings, and other layers of token ids and sequences without attention."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...inputs.checks import OptionalStd, Size
from ..parameters import Parameter, Shape, Uniform, Zeros, normal_or
from .layer import Layer, require_sequence


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
        initializer = normal_or(Uniform(0.05), self.std)
        return {"weight": Parameter((self.vocabulary, self.features), initializer)}


@dataclass(frozen=True)
class OneHot(Layer):
    """Sets 1 at the index of each token id, else 0: (L,) to (L, vocabulary)."""

    vocabulary: Size

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*_require_token_ids(self, input_shape), self.vocabulary)


@dataclass(frozen=True)
class Unembedding(Layer):
    """Computes weight @ x at each place, with the weight of the model's Embedding, which is its
    first layer (tied weights; Press and Wolf, 2017): (L, F) to (L, vocabulary).
    """

    vocabulary: Size

    def output_shape(self, input_shape: Shape) -> Shape:
        return (require_sequence(self, input_shape)[0], self.vocabulary)

    def forward_flops(self, input_shape: Shape) -> int:
        return 2 * math.prod(input_shape) * self.vocabulary


@dataclass(frozen=True)
class PositionEmbedding(Layer):
    """Adds the weight's (L, F) row of each place: (L, F) to (L, F). std: uniform in ±0.05 by
    default.
    """

    std: OptionalStd = None

    def output_shape(self, input_shape: Shape) -> Shape:
        return require_sequence(self, input_shape)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        return {"weight": Parameter(input_shape, normal_or(Uniform(0.05), self.std))}


@dataclass(frozen=True)
class SinusoidalPositions(Layer):
    """Adds sin(p / 10000^(2 i / F)) to the feature 2 i of the place p, and its cosine to the
    feature 2 i + 1, both from 0 (Vaswani et al., 2017): (L, F) to (L, F).
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        _, features = require_sequence(self, input_shape)
        if features % 2:
            raise ValueError(f"{self} adds pairs of a sine and a cosine, not {features} features")
        return input_shape


@dataclass(frozen=True)
class ClassToken(Layer):
    """Puts the weight (F,), the same for all examples, before a sequence (Devlin et al., 2019):
    (L, F) to (L + 1, F). std: zeros by default.
    """

    std: OptionalStd = None

    def output_shape(self, input_shape: Shape) -> Shape:
        length, features = require_sequence(self, input_shape)
        return (length + 1, features)

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        return {"weight": Parameter(input_shape[-1:], normal_or(Zeros(), self.std))}


@dataclass(frozen=True)
class FirstOfSequence(Layer):
    """Takes the first place of a sequence: (L, F) to (F,)."""

    def output_shape(self, input_shape: Shape) -> Shape:
        return require_sequence(self, input_shape)[1:]


def _require_token_ids(layer: Layer, shape: Shape) -> Shape:
    if len(shape) != 1:
        raise ValueError(f"{layer} takes token ids (length,), not the shape {shape}")
    return shape
