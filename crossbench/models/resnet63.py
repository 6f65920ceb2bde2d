"""Describe the ResNet of hideyukiinada's benchmark1 (2019): 63 convolutions, 10 blocks per stage.

The post trains on one batch of 64, four times. With a stride of 2, Keras pads at the end only; here
both sides are padded, as torch and Flux do: the output sizes and the FLOPs are the same.
"""

from ..data.sources import CIFAR10
from . import (
    Adam,
    BatchNorm,
    Conv,
    Dense,
    GlobalAveragePool,
    Layer,
    Model,
    ReLU,
    Residual,
    SoftmaxCrossEntropy,
)

BLOCKS = 10  # per stage
NORM = BatchNorm(epsilon=1e-3, momentum=0.99)  # Keras' defaults


def conv3x3(features: int, stride: int = 1) -> tuple[Layer, ...]:
    return (Conv(features, kernel=(3, 3), stride=(stride, stride), padding=(1, 1)), NORM)


def block(features: int, stride: int = 1) -> tuple[Layer, ...]:
    body = (*conv3x3(features, stride), ReLU(), *conv3x3(features))
    shortcut = (Conv(features, kernel=(1, 1), stride=(2, 2)), NORM) if stride == 2 else ()
    return (Residual(body, shortcut), ReLU())


def stage(features: int, stride: int) -> tuple[Layer, ...]:
    return block(features, stride) + (BLOCKS - 1) * block(features)


MODEL = Model(
    name="resnet63",
    input_shape=(3, 32, 32),
    layers=(
        *conv3x3(64),
        ReLU(),
        *stage(64, stride=1),
        *stage(128, stride=2),
        *stage(256, stride=2),
        GlobalAveragePool(),
        Dense(10),
    ),
    loss=SoftmaxCrossEntropy(),
    optimizer=Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-7),
    batch_size=64,
    batches=1,
    data=CIFAR10(),
    source="hideyukiinada's benchmark1, 2019: Keras 2.2, one batch of CIFAR-10",
)
