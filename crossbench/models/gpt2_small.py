"""Describe GPT-2 of 124 million parameters, trained as nanoGPT reproduces it.

The layers are OpenAI's (openai/gpt-2, src/model.py; Radford et al., 2019), with biases and the GELU
by tanh; OpenAI did not publish the training. That is nanoGPT's (config/train_gpt2.py), without its
accumulation of gradients over 40 batches. OpenAI's text was never published either: the token ids
are synthetic. An epoch has two batches.
"""

import math

from ..data.sources import TokenIds
from .layers import GELU, Embedding, LayerNorm, PositionEmbedding, Unembedding
from .model import Model
from .training import AdamW, SoftmaxCrossEntropy, WarmupCosine
from .transformer import EPSILON, STD, Block

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
    layers=(
        Embedding(VOCABULARY, FEATURES, STD),
        PositionEmbedding(STD),
        *BLOCK.layers() * LAYERS,
        LayerNorm(EPSILON),
        Unembedding(VOCABULARY),
    ),
    loss=SoftmaxCrossEntropy(),
    optimizer=AdamW(
        learning_rate=6e-4,
        beta1=0.9,
        beta2=0.95,
        epsilon=1e-8,
        weight_decay=0.1,
        matrices_only=True,
        clip_norm=1.0,
        schedule=WarmupCosine(warmup=2_000, steps=600_000, minimum=0.1),
    ),
    batch_size=12,
    batches=2,
    data=TokenIds(vocabulary=VOCABULARY, length=LENGTH),
    source="OpenAI's GPT-2, 2019, trained as by karpathy/nanoGPT: config/train_gpt2.py",
)
