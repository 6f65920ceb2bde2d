"""Describe the DenseNet of https://github.com/phlippe/uvadlc_notebooks/issues/85, which asks
whether JAX is still faster than PyTorch with torch.compile (2023), in tutorial 5 of the UvA's
deep learning course: four dense blocks of six layers, growing by 16 channels, on CIFAR-10. It has
239,146 parameters that are trained, as there.
"""

from crossbench.models import (
    AdamW,
    AveragePool,
    BatchNorm,
    Branches,
    Conv,
    Dense,
    GlobalAveragePool,
    Layer,
    Model,
    ReLU,
    SoftmaxCrossEntropy,
)

NORM = BatchNorm(epsilon=1e-5, momentum=0.9)
GROWTH, BOTTLENECK, BLOCKS = 16, 2, (6, 6, 6, 6)


def dense_layer() -> Branches:
    grown = (
        *(NORM, ReLU(), Conv(BOTTLENECK * GROWTH, (1, 1), bias=False)),
        *(NORM, ReLU(), Conv(GROWTH, (3, 3), padding=(1, 1), bias=False)),
    )
    return Branches((grown, ()), "concatenate")


def layers() -> tuple[Layer, ...]:
    channels = BOTTLENECK * GROWTH
    found: list[Layer] = [Conv(channels, (3, 3), padding=(1, 1))]
    for number, size in enumerate(BLOCKS, start=1):
        found += [dense_layer() for _ in range(size)]
        channels += size * GROWTH
        if number < len(BLOCKS):
            channels //= 2
            found += [NORM, ReLU(), Conv(channels, (1, 1), bias=False), AveragePool((2, 2), (2, 2))]
    return (*found, NORM, ReLU(), GlobalAveragePool(), Dense(10))


DENSENET = Model(
    name="uvadlc_densenet",
    input_shape=(3, 32, 32),
    layers=layers(),
    loss=SoftmaxCrossEntropy(),
    optimizer=AdamW(1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=1e-4),
    batch_size=128,
    source="https://github.com/phlippe/uvadlc_notebooks/issues/85",
)
