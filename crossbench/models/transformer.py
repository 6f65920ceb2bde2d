"""Build what the GPTs and the vision transformer share: the blocks, and how nanoGPT trains."""

from __future__ import annotations

from dataclasses import dataclass

from . import (
    GELU,
    AdamW,
    Dense,
    Embedding,
    Layer,
    LayerNorm,
    MultiHeadAttention,
    PositionEmbedding,
    Residual,
    Unembedding,
    WarmupCosine,
)

EPSILON = 1e-5
"""Of the layer norms: PyTorch's default, and GPT-2's."""
STD = 0.02
"""Of the normal initial weights: GPT-2's, and the vision transformer's."""


@dataclass(frozen=True)
class Block:
    """Describes a block with the norms first (Xiong et al., 2020), as GPT-2's are.

    last_std: of the initial weights of the two projections that are added to the input.
    """

    features: int
    heads: int
    causal: bool
    bias: bool
    gelu: GELU
    last_std: float = STD

    def layers(self) -> tuple[Layer, Layer]:
        """Return the two residuals: self-attention, and two dense layers."""
        norm = LayerNorm(EPSILON, self.bias)
        attention = MultiHeadAttention(self.heads, self.causal, self.bias, STD, self.last_std)
        wide = Dense(4 * self.features, self.bias, STD)
        narrow = Dense(self.features, self.bias, self.last_std)
        return Residual((norm, attention)), Residual((norm, wide, self.gelu, narrow))


def gpt_layers(vocabulary: int, block: Block, blocks: int) -> tuple[Layer, ...]:
    """Return the layers of a GPT, from token ids to logits at each place, with tied weights."""
    return (
        Embedding(vocabulary, block.features, STD),
        PositionEmbedding(STD),
        *block.layers() * blocks,
        LayerNorm(EPSILON, block.bias),
        Unembedding(vocabulary),
    )


def nanogpt_optimizer(learning_rate: float, beta2: float, warmup: int, steps: int) -> AdamW:
    """Return nanoGPT's optimizer, whose learning rate falls to a tenth (train.py)."""
    return AdamW(
        learning_rate,
        beta1=0.9,
        beta2=beta2,
        epsilon=1e-8,
        weight_decay=0.1,
        matrices_only=True,
        clip_norm=1.0,
        schedule=WarmupCosine(warmup, steps, minimum=0.1),
    )
