"""Describe the parameters of a layer: their shapes and initial values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Zeros:
    """Initializes with 0."""

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.zeros(shape, np.float32)


@dataclass(frozen=True)
class Ones:
    """Initializes with 1."""

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.ones(shape, np.float32)


@dataclass(frozen=True)
class Constant:
    """Initializes with one value."""

    value: float

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.full(shape, self.value, np.float32)


@dataclass(frozen=True)
class Uniform:
    """Initializes uniformly in ±bound."""

    bound: float

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return random.uniform(-self.bound, self.bound, shape).astype(np.float32)


@dataclass(frozen=True)
class Orthogonal:
    """Makes the columns orthonormal: Keras' default for recurrent weights (Saxe et al., 2013)."""

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        q, r = np.linalg.qr(random.standard_normal(shape))
        return (q * np.sign(np.diag(r))).astype(np.float32)


@dataclass(frozen=True)
class ForgetGateOnes:
    """Initializes an LSTM's bias with 1 for the forget gate, the second of four, and 0 for the
    others: Keras' default (Jozefowicz et al., 2015).
    """

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return np.repeat(np.array([0, 1, 0, 0], np.float32), shape[0] // 4)


@dataclass(frozen=True)
class GlorotUniform:
    """Initializes uniformly in ±sqrt(6 / (fan_in + fan_out)): Flux's default (Glorot and Bengio,
    2010).
    """

    fan_in: int
    fan_out: int

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return Uniform(math.sqrt(6 / (self.fan_in + self.fan_out))).sample(random, shape)


@dataclass(frozen=True)
class Normal:
    """Initializes normally with the mean 0 and this standard deviation."""

    std: float

    def sample(self, random: np.random.Generator, shape: Shape) -> np.ndarray:
        return (self.std * random.standard_normal(shape)).astype(np.float32)


Initializer = (
    Zeros | Ones | Constant | Uniform | Orthogonal | ForgetGateOnes | GlorotUniform | Normal
)


@dataclass(frozen=True)
class Parameter:
    """Describes one array of a layer: its canonical shape and its initial values.

    trained: whether the optimizer updates it; the layer itself updates one that is not trained (a
    batch norm's running statistics).
    """

    shape: Shape
    initializer: Initializer
    trained: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def normal_or(default: Initializer, std: float | None) -> Initializer:
    """Return normal initial values with this standard deviation, or, for None, the default."""
    return default if std is None else Normal(std)


def weight_and_bias(weight: Parameter, bias: bool) -> dict[str, Parameter]:
    """Return both by their names, the bias with a number for each of the weight's first axis."""
    return {"weight": weight} | ({"bias": Parameter(weight.shape[:1], Zeros())} if bias else {})
