"""Describe the MobileNetV2 for CIFAR-10 of kuangliu/pytorch-cifar (models/mobilenetv2.py).

It has depthwise convolutions between two of 1 by 1 (Sandler et al., 2018). As there, the
activations are ReLUs, not ReLU6s, two strides are 1, and a block of stride 1 that widens has a
convolution on its shortcut; the paper's has no shortcut then.
"""

from . import Layer, ReLU, Residual
from .pytorch_cifar import convolved, make_model

BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, features, number of blocks, and stride of the first one."""


def block(before: int, features: int, expansion: int, stride: int) -> tuple[Layer, ...]:
    wide = expansion * before
    body = (
        *convolved(wide, 1),
        ReLU(),
        *convolved(wide, 3, stride, groups=wide),
        ReLU(),
        *convolved(features, 1),
    )
    if stride > 1:
        return body
    return (Residual(body, convolved(features, 1) if before != features else ()),)


def blocks() -> tuple[Layer, ...]:
    found: tuple[Layer, ...] = ()
    before = 32
    for expansion, features, count, stride in BLOCKS:
        for number in range(count):
            found += block(before, features, expansion, stride if number == 0 else 1)
            before = features
    return found


MODEL = make_model(
    "mobilenet_v2",
    (*convolved(32, 3), ReLU(), *blocks(), *convolved(1280, 1), ReLU()),
)
