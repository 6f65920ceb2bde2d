"""Describe the small character GPT of nanoGPT, which its README has for a computer without a GPU.

(karpathy/nanoGPT: README.md, config/train_shakespeare_char.py and train.py, of 2025.) The epoch has
250 steps, after which nanoGPT evaluates; its training has 2,000. The catalogue's model has 65
characters, as Shakespeare's text has; a run takes the number of its data.
"""

import dataclasses
import math

from ..data.sources import RandomPositions, TinyShakespeare
from . import GELU, Model, SoftmaxCrossEntropy
from .transformer import STD, Block, gpt_layers, nanogpt_optimizer

LENGTH, LAYERS, HEADS, FEATURES = 64, 4, 4, 128
LAST_STD = STD / math.sqrt(2 * LAYERS)
BLOCK = Block(FEATURES, HEADS, causal=True, bias=False, gelu=GELU(), last_std=LAST_STD)


def for_vocabulary(size: int) -> Model:
    return Model(
        name="gpt_char",
        input_shape=(LENGTH,),
        layers=gpt_layers(size, BLOCK, LAYERS),
        loss=SoftmaxCrossEntropy(),
        optimizer=nanogpt_optimizer(1e-3, beta2=0.99, warmup=100, steps=2_000),
        batch_size=12,
        batches=250,
        data=TinyShakespeare(length=LENGTH, augmentation=RandomPositions()),
        source="karpathy/nanoGPT, README: a character GPT on the CPU",
    )


MODEL = dataclasses.replace(for_vocabulary(65), for_vocabulary=for_vocabulary)
