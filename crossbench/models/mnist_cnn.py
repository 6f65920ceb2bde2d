"""Describe the CNN for MNIST of minimaxir's keras-cntk-benchmark.

The benchmark (2017) took it from Keras' examples.
"""

from ..data.sources import MNIST
from . import Adadelta, Conv, Dense, Dropout, Flatten, MaxPool, Model, ReLU, SoftmaxCrossEntropy

MODEL = Model(
    name="mnist_cnn",
    input_shape=(1, 28, 28),
    layers=(
        Conv(32, kernel=(3, 3)),
        ReLU(),
        Conv(64, kernel=(3, 3)),
        ReLU(),
        MaxPool((2, 2), stride=(2, 2)),
        Dropout(0.25),
        Flatten(),
        Dense(128),
        ReLU(),
        Dropout(0.5),
        Dense(10),
    ),
    loss=SoftmaxCrossEntropy(),
    optimizer=Adadelta(learning_rate=1.0, rho=0.95, epsilon=1e-8),  # Keras' defaults of 2017
    batch_size=128,
    data=MNIST(),
    source="minimaxir's keras-cntk-benchmark, 2017: mnist_cnn",
)
