"""Describe the CNN for CIFAR-10 of minimaxir's keras-cntk-benchmark.

The benchmark (2017) took it from Keras' examples.
"""

from ..data.sources import CIFAR10, Augmentation
from . import (
    Conv,
    Dense,
    Dropout,
    Flatten,
    InverseTimeDecay,
    MaxPool,
    Model,
    ReLU,
    RMSprop,
    SoftmaxCrossEntropy,
)

MODEL = Model(
    name="cifar_cnn",
    input_shape=(3, 32, 32),
    layers=(
        Conv(32, kernel=(3, 3), padding=(1, 1)),
        ReLU(),
        Conv(32, kernel=(3, 3)),
        ReLU(),
        MaxPool((2, 2), stride=(2, 2)),
        Dropout(0.25),
        Conv(64, kernel=(3, 3), padding=(1, 1)),
        ReLU(),
        Conv(64, kernel=(3, 3)),
        ReLU(),
        MaxPool((2, 2), stride=(2, 2)),
        Dropout(0.25),
        Flatten(),
        Dense(512),
        ReLU(),
        Dropout(0.5),
        Dense(10),
    ),
    loss=SoftmaxCrossEntropy(),
    # rho and epsilon: Keras' defaults of 2017
    optimizer=RMSprop(1e-4, rho=0.9, epsilon=1e-8, schedule=InverseTimeDecay(1e-6)),
    batch_size=32,
    data=CIFAR10(augmentation=Augmentation(shift=0.1, flip=True)),
    source="minimaxir's keras-cntk-benchmark, 2017: cifar10_cnn",
)
