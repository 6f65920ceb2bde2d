"""Describe the vision transformer for CIFAR-10 of tintn/vision-transformer-from-scratch.

(vit.py and train.py, of 2023: 75.5 % of the test pictures right after 100 epochs.) It has no layer
norm after its blocks. Deviations: the pictures are in [0, 1], not in [-1, 1], and are flipped and
shifted by up to a tenth, where the original flips and crops them at random.
"""

from ..data.sources import CIFAR10, Augmentation
from . import (
    GELU,
    AdamW,
    ClassToken,
    Conv,
    Dense,
    FirstOfSequence,
    Model,
    PositionEmbedding,
    SoftmaxCrossEntropy,
    ToSequence,
)
from .transformer import STD, Block

PATCH, LAYERS, HEADS, FEATURES = (4, 4), 4, 4, 48
BLOCK = Block(FEATURES, HEADS, causal=False, bias=True, gelu=GELU(tanh=True))

MODEL = Model(
    name="vit_cifar",
    input_shape=(3, 32, 32),
    layers=(
        Conv(FEATURES, kernel=PATCH, stride=PATCH, std=STD),
        ToSequence(),
        ClassToken(STD),
        PositionEmbedding(STD),
        *BLOCK.layers() * LAYERS,
        FirstOfSequence(),
        Dense(10, std=STD),
    ),
    loss=SoftmaxCrossEntropy(),
    # betas and epsilon: PyTorch's defaults
    optimizer=AdamW(1e-2, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=1e-2),
    batch_size=256,
    data=CIFAR10(augmentation=Augmentation(shift=0.1, flip=True)),
    source="tintn/vision-transformer-from-scratch, 2023",
)
