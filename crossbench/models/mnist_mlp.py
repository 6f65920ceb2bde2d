"""Describe the multilayer perceptron of minimaxir's keras-cntk-benchmark.

The benchmark (2017) took it from Keras' examples.
"""

from ..data.sources import MNIST
from . import Dense, Dropout, Flatten, Model, ReLU, RMSprop, SoftmaxCrossEntropy

MODEL = Model(
    name="mnist_mlp",
    input_shape=(1, 28, 28),
    layers=(
        Flatten(),
        Dense(512),
        ReLU(),
        Dropout(0.2),
        Dense(512),
        ReLU(),
        Dropout(0.2),
        Dense(10),
    ),
    loss=SoftmaxCrossEntropy(),
    optimizer=RMSprop(learning_rate=1e-3, rho=0.9, epsilon=1e-8),  # Keras' defaults of 2017
    batch_size=128,
    data=MNIST(),
    source="minimaxir's keras-cntk-benchmark, 2017: mnist_mlp",
)
