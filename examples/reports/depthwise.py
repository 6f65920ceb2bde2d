"""Describe the depthwise convolution of https://github.com/jax-ml/jax/issues/23713 and
https://github.com/google/flax/issues/4207 (2024, on a CPU: JAX 1.6 s where PyTorch takes 0.93 s
and TensorFlow 0.88 s), of https://github.com/pytorch/pytorch/issues/157334 (2025, on a GPU:
PyTorch three times as slow as JAX), and of https://github.com/FluxML/Flux.jl/issues/2626 (slower
than a dense one).

The reports time the forward pass of one layer; a step here trains it, behind it the mean of each
channel and a dense layer. `--layers` shows the layer alone, `--task predict` the forward pass.
"""

from crossbench.models import SGD, Conv, Dense, GlobalAveragePool, Model, SoftmaxCrossEntropy

SOURCE = "https://github.com/jax-ml/jax/issues/23713"


def depthwise(channels: int, batch_size: int) -> Model:
    return Model(
        name=f"depthwise{channels}",
        input_shape=(channels, 124, 124),
        layers=(
            Conv(channels, (3, 3), padding=(1, 1), groups=channels),
            GlobalAveragePool(),
            Dense(10),
        ),
        loss=SoftmaxCrossEntropy(),
        optimizer=SGD(learning_rate=0.01),
        batch_size=batch_size,
        source=SOURCE,
    )


WIDE, NARROW = depthwise(256, 1), depthwise(64, 1)
