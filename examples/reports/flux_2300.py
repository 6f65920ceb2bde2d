"""Describe the DCGAN of https://github.com/FluxML/Flux.jl/issues/2300: "Why Flux is
Significantly Slower than Pytorch?" (2023, on a GPU: ten times).

The report trains both networks in turns on MNIST, in batches of 100. Here each is trained alone:
the generator towards given pictures, the discriminator to tell two classes of them. The layers
are those of Flux's tutorial, which the report's code follows.
"""

from crossbench.models import (
    Adam,
    BatchNorm,
    BinaryCrossEntropy,
    Conv,
    Dense,
    Dropout,
    Flatten,
    LeakyReLU,
    MeanSquaredError,
    Model,
    ReLU,
    Reshape,
    Tanh,
    TransposedConv,
)

SOURCE = "https://github.com/FluxML/Flux.jl/issues/2300"
NORM = BatchNorm(epsilon=1e-5, momentum=0.9)
ADAM = Adam(learning_rate=1e-4, beta1=0.9, beta2=0.999, epsilon=1e-8)

GENERATOR = Model(
    name="dcgan_generator",
    input_shape=(100,),
    layers=(
        Dense(7 * 7 * 256, bias=False),
        NORM,
        ReLU(),
        Reshape((256, 7, 7)),
        TransposedConv(128, (5, 5), padding=(2, 2), bias=False),
        NORM,
        ReLU(),
        TransposedConv(64, (4, 4), stride=(2, 2), padding=(1, 1), bias=False),
        NORM,
        ReLU(),
        TransposedConv(1, (4, 4), stride=(2, 2), padding=(1, 1), bias=False),
        Tanh(),
        Flatten(),
    ),
    loss=MeanSquaredError(),
    optimizer=ADAM,
    batch_size=100,
    source=SOURCE,
)
DISCRIMINATOR = Model(
    name="dcgan_discriminator",
    input_shape=(1, 28, 28),
    layers=(
        Conv(64, (4, 4), stride=(2, 2), padding=(1, 1), bias=False),
        LeakyReLU(0.2),
        Dropout(0.3),
        Conv(128, (4, 4), stride=(2, 2), padding=(1, 1), bias=False),
        LeakyReLU(0.2),
        Dropout(0.3),
        Flatten(),
        Dense(1),
    ),
    loss=BinaryCrossEntropy(),
    optimizer=ADAM,
    batch_size=100,
    source=SOURCE,
)
