"""Describe the ResNet-18 for CIFAR-10 of kuangliu/pytorch-cifar (models/resnet.py).

The network is of He et al., 2016. Its first convolution has 3 by 3 pixels and a stride of 1, where
ImageNet's has 7 by 7, a stride of 2 and a pool.
"""

from . import Layer, ReLU, Residual
from .pytorch_cifar import convolved, make_model


def block(features: int, stride: int = 1, widens: bool = False) -> tuple[Layer, ...]:
    body = (*convolved(features, 3, stride), ReLU(), *convolved(features, 3))
    return (Residual(body, convolved(features, 1, stride) if widens else ()), ReLU())


MODEL = make_model(
    "resnet18",
    (
        *convolved(64, 3),
        ReLU(),
        *block(64),
        *block(64),
        *block(128, stride=2, widens=True),
        *block(128),
        *block(256, stride=2, widens=True),
        *block(256),
        *block(512, stride=2, widens=True),
        *block(512),
    ),
)
