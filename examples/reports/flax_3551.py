"""Describe the model of https://github.com/google/flax/issues/3551: "flax is significantly
slower than pytorch" (2023: five times), which is that of Flax's quick start.
"""

from crossbench.models import (
    SGD,
    AveragePool,
    Conv,
    Dense,
    Flatten,
    Model,
    ReLU,
    SoftmaxCrossEntropy,
)

POOL = AveragePool((2, 2), stride=(2, 2))

QUICK_START = Model(
    name="flax_quick_start",
    input_shape=(1, 28, 28),
    layers=(
        Conv(32, (3, 3), padding=(1, 1)),
        ReLU(),
        POOL,
        Conv(64, (3, 3), padding=(1, 1)),
        ReLU(),
        POOL,
        Flatten(),
        Dense(256),
        ReLU(),
        Dense(10),
    ),
    loss=SoftmaxCrossEntropy(),
    optimizer=SGD(learning_rate=0.01, momentum=0.9),
    batch_size=32,
    source="https://github.com/google/flax/issues/3551",
)
