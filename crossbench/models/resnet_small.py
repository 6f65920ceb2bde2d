"""Describe the "Small ResNet" of SciMLBenchmarks.jl's "Simple Neural Networks" (2026).

It is that of the PyTorch row, with a ReLU after the residual's sum, which the Julia rows lack.
There the Lux row minimises the sum of the squared errors, and the others the mean; here all
minimise the mean. Flux and JAX have no row there.
"""

from . import BatchNorm, Conv, Dense, GlobalAveragePool, Layer, ReLU, Residual
from .simple_networks import OUTPUTS, make_model

NORM = BatchNorm(epsilon=1e-5, momentum=0.9)


def conv3x3(features: int, stride: int = 1) -> tuple[Layer, ...]:
    conv = Conv(features, kernel=(3, 3), stride=(stride, stride), padding=(1, 1), bias=False)
    return (conv, NORM)


LAYERS = (
    *conv3x3(64),
    ReLU(),
    Residual((*conv3x3(64), ReLU(), *conv3x3(64))),
    ReLU(),
    *conv3x3(128, stride=2),
    ReLU(),
    *conv3x3(128),
    GlobalAveragePool(),
    Dense(OUTPUTS),
)

MODEL = make_model("resnet_small", (3, 32, 32), LAYERS, batch_size=32)
