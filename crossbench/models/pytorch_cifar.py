"""Build the CIFAR-10 models of kuangliu/pytorch-cifar (2017 to 2021), which are trained alike.

Deviations: the pictures are in [0, 1], not normalized, and are shifted by up to an eighth, where
the original pads four zeros on each side before it crops; the cosine falls in each step, not after
each epoch.
"""

from __future__ import annotations

from ..data.sources import CIFAR10, Augmentation
from . import SGD, BatchNorm, Conv, Cosine, Dense, GlobalAveragePool, Layer, Model
from .training import SoftmaxCrossEntropy

NORM = BatchNorm(epsilon=1e-5, momentum=0.9)  # PyTorch's defaults
EPOCHS, STEPS = 200, 391  # of 128 pictures each


def convolved(features: int, size: int, stride: int = 1, groups: int = 1) -> tuple[Layer, ...]:
    """Return a convolution without biases that keeps the size, but for its stride, and its norm."""
    sides = (size // 2, size // 2)
    conv = Conv(features, (size, size), (stride, stride), sides, bias=False, groups=groups)
    return (conv, NORM)


def make_model(name: str, layers: tuple[Layer, ...]) -> Model:
    """Return a model of these layers, with a mean over all places and a dense layer behind them."""
    return Model(
        name=name,
        input_shape=(3, 32, 32),
        layers=(*layers, GlobalAveragePool(), Dense(10)),
        loss=SoftmaxCrossEntropy(),
        optimizer=SGD(0.1, momentum=0.9, weight_decay=5e-4, schedule=Cosine(EPOCHS * STEPS, 0.0)),
        batch_size=128,
        data=CIFAR10(augmentation=Augmentation(shift=0.125, flip=True)),
        source=f"kuangliu/pytorch-cifar: {name}, PyTorch",
    )
