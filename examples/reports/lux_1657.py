"""Describe the network of https://github.com/LuxDL/Lux.jl/issues/1657 (2026), which was trained in
PyTorch and is to predict in Lux.jl.
"""

from crossbench.models import Adam, Dense, Dropout, LeakyReLU, MeanSquaredError, Model

MLP = Model(
    name="speedy_weather",
    input_shape=(13,),
    layers=(
        *(Dense(32), LeakyReLU(0.01)),
        *(Dense(64), LeakyReLU(0.01), Dropout(0.2)),
        *(Dense(64), LeakyReLU(0.01), Dropout(0.1)),
        *(Dense(32), LeakyReLU(0.01)),
        Dense(1),
    ),
    loss=MeanSquaredError(),
    optimizer=Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
    batch_size=256,
    source="https://github.com/LuxDL/Lux.jl/issues/1657",
)
