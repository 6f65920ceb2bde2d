"""Describe the CNN of ilkarman's DeepLearningFrameworks (2017).

The repository is "a Rosetta Stone" of frameworks. The published model has 3,441,592 parameters, and
no activation between a stage's second convolution and its pool.
"""

from ..data.sources import CIFAR10
from . import SGD, Conv, Dense, Dropout, Flatten, Layer, MaxPool, Model, ReLU, SoftmaxCrossEntropy


def stage(features: int) -> tuple[Layer, ...]:
    conv = Conv(features, kernel=(3, 3), padding=(1, 1))
    return (conv, ReLU(), conv, MaxPool((2, 2), stride=(2, 2)), ReLU(), Dropout(0.25))


MODEL = Model(
    name="rosetta_cnn",
    input_shape=(3, 32, 32),
    layers=(
        *stage(50),
        *stage(100),
        Flatten(),
        Dense(512),
        ReLU(),
        Dropout(0.5),
        Dense(10),
    ),
    loss=SoftmaxCrossEntropy(),
    optimizer=SGD(learning_rate=0.01, momentum=0.9),
    batch_size=64,
    data=CIFAR10(),
    source="ilkarman's DeepLearningFrameworks, 2017: the CNN",
)
