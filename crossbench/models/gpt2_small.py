"""Describe GPT-2 of 124 million parameters, trained as nanoGPT reproduces it.

The layers are OpenAI's (openai/gpt-2, src/model.py; Radford et al., 2019), with biases and the GELU
by tanh; OpenAI did not publish the training. That is nanoGPT's (config/train_gpt2.py), without its
accumulation of gradients over 40 batches. OpenAI's text was never published either: the token ids
are synthetic. An epoch has two batches.
"""

import math

from . import GELU, Model, SoftmaxCrossEntropy
from .transformer import STD, Block, gpt_layers, nanogpt_optimizer

VOCABULARY, LENGTH, LAYERS, HEADS, FEATURES = 50_257, 1_024, 12, 12, 768
BLOCK = Block(
    FEATURES,
    HEADS,
    causal=True,
    bias=True,
    gelu=GELU(tanh=True),
    last_std=STD / math.sqrt(2 * LAYERS),
)

MODEL = Model(
    name="gpt2_small",
    input_shape=(LENGTH,),
    layers=gpt_layers(VOCABULARY, BLOCK, LAYERS),
    loss=SoftmaxCrossEntropy(),
    optimizer=nanogpt_optimizer(6e-4, beta2=0.95, warmup=2_000, steps=600_000),
    batch_size=12,
    batches=2,
    source="OpenAI's GPT-2, 2019, trained as by karpathy/nanoGPT: config/train_gpt2.py",
)
