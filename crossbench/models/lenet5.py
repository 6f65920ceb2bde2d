"""Describe the "LeNet 5" of SciMLBenchmarks.jl's "Simple Neural Networks" (2026).

There the Lux and Flux rows minimise the sum of the squared errors, and the others the mean; here
all minimise the mean. There the JAX rows take each step with Adam's initial state.
"""

from . import Conv, Dense, Flatten, MaxPool, ReLU
from .simple_networks import OUTPUTS, make_model

LAYERS = (
    Conv(6, kernel=(5, 5)),
    ReLU(),
    MaxPool((2, 2), stride=(2, 2)),
    Conv(16, kernel=(5, 5)),
    ReLU(),
    MaxPool((2, 2), stride=(2, 2)),
    Flatten(),
    Dense(120),
    ReLU(),
    Dense(84),
    ReLU(),
    Dense(OUTPUTS),
)

MODEL = make_model("lenet5", (1, 28, 28), LAYERS, batch_size=128)
