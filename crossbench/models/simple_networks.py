"""Build the models of SciMLBenchmarks.jl's "Simple Neural Networks" (2026) from their layers.

They share the loss, the optimizer and, without `data`, normal numbers as examples. In the source
the Lux and Flux rows minimise the sum of the squared errors, and the others the mean; here all
minimise the mean.
"""

from __future__ import annotations

from . import Adam, Dense, Layer, MeanSquaredError, Model
from .parameters import Shape

OUTPUTS = 10


def make_model(name: str, input_shape: Shape, layers: tuple[Layer, ...], batch_size: int) -> Model:
    return Model(
        name=name,
        input_shape=input_shape,
        layers=layers,
        loss=MeanSquaredError(),
        optimizer=Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
        batch_size=batch_size,
        source="SciMLBenchmarks.jl, 2026: Simple Neural Networks",
    )


def make_mlp7(name: str, *activation: Layer) -> Model:
    """Return the MLP of seven dense layers. activation: what follows each one but the last."""
    hidden = (Dense(256), *activation)
    return make_model(name, (32,), (*6 * hidden, Dense(OUTPUTS)), batch_size=128)
