"""Describe the large CNN of DATAmadness' "TensorFlow 2 - CPU vs GPU Performance Comparison" (2019).

It has 58,091,396 parameters, of which 2,880 are not trained. The post gives shapes and parameter
counts; activations, dropout rates and padding are those of the CNN that the post follows
(activation before the batch norm, dropout 0.25, and 0.5 before the last layer).
"""

from ..data.sources import Augmentation, Synthetic
from . import (
    Adam,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool,
    Model,
    ReLU,
    SoftmaxCrossEntropy,
)

NORM = BatchNorm(epsilon=1e-3, momentum=0.99)  # Keras' defaults


def conv3x3(features: int) -> tuple[Layer, ...]:
    return (Conv(features, kernel=(3, 3), padding=(1, 1)), ReLU(), NORM)


def pool(size: int) -> tuple[Layer, ...]:
    return (MaxPool((size, size), stride=(size, size)), Dropout(0.25))


MODEL = Model(
    name="bignet",
    input_shape=(3, 256, 256),
    layers=(
        *conv3x3(32),
        *pool(3),
        *conv3x3(64),
        *conv3x3(64),
        *pool(2),
        *conv3x3(128),
        *conv3x3(128),
        *pool(2),
        Flatten(),
        Dense(1024),
        ReLU(),
        NORM,
        Dropout(0.5),
        Dense(4),
    ),
    loss=SoftmaxCrossEntropy(),
    optimizer=Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-7),
    batch_size=64,
    data=Synthetic(augmentation=Augmentation(shift=0.1, flip=True)),
    source="DATAmadness, TensorFlow 2 - CPU vs GPU Performance Comparison, 2019",
)
