"""Describe the U-Net of mateuszbuda/brain-segmentation-pytorch (PyTorch Hub, 2019).

It marks a glioma in slices of a brain (Ronneberger et al., 2015). Deviation: the original minimises
the complement of the Dice coefficient of a batch; here it is the squared error of each pixel, and
the pixels are synthetic.
"""

from . import (
    Adam,
    BatchNorm,
    Branches,
    Conv,
    Flatten,
    Layer,
    MaxPool,
    MeanSquaredError,
    Model,
    ReLU,
    Sigmoid,
    TransposedConv,
)
from .layers.branches import CONCATENATE

FEATURES = 32
NORM = BatchNorm(epsilon=1e-5, momentum=0.9)  # PyTorch's defaults


def two_convolutions(features: int) -> tuple[Layer, ...]:
    return 2 * (Conv(features, (3, 3), padding=(1, 1), bias=False), NORM, ReLU())


def level(features: int, depth: int) -> tuple[Layer, ...]:
    """Return what begins with so many features, with `depth` smaller sizes within."""
    if not depth:
        return two_convolutions(features)
    smaller = (
        MaxPool((2, 2), stride=(2, 2)),
        *level(2 * features, depth - 1),
        TransposedConv(features, (2, 2), stride=(2, 2)),
    )
    joined = Branches((smaller, ()), CONCATENATE)
    return (*two_convolutions(features), joined, *two_convolutions(features))


MODEL = Model(
    name="unet",
    input_shape=(3, 256, 256),
    layers=(*level(FEATURES, depth=4), Conv(1, (1, 1)), Sigmoid(), Flatten()),
    loss=MeanSquaredError(),
    optimizer=Adam(learning_rate=1e-4, beta1=0.9, beta2=0.999, epsilon=1e-8),
    batch_size=16,
    source="mateuszbuda/brain-segmentation-pytorch, 2019: U-Net",
)
