"""Describe the LeNet-style CNN for CIFAR-10 of the Flux.jl post (2021): 39,558 parameters.

The published model has no activation between the dense layers.
"""

from ..data.sources import CIFAR10
from . import SGD, Conv, Dense, Flatten, MaxPool, Model, ReLU, SoftmaxCrossEntropy

MODEL = Model(
    name="lenet",
    input_shape=(3, 32, 32),
    layers=(
        Conv(16, kernel=(5, 5)),
        ReLU(),
        MaxPool((2, 2), stride=(2, 2)),
        Conv(8, kernel=(5, 5)),
        ReLU(),
        MaxPool((2, 2), stride=(2, 2)),
        Flatten(),
        Dense(120),
        Dense(84),
        Dense(10),
    ),
    loss=SoftmaxCrossEntropy(),
    optimizer=SGD(learning_rate=0.01, momentum=0.9),
    batch_size=1000,
    data=CIFAR10(),
    source="Flux.jl post of 2021: deep learning with Flux, CIFAR-10 in 50 batches of 1,000",
)
