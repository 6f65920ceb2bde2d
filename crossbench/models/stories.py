"""Build the small Llamas of karpathy/llama2.c (2023: model.py, train.py), which tell stories.

They are Llama 2's: RMS norms, rotated pairs of neighbouring features, SiLU gates, no biases, and
the embedding's weight again at the end. Deviations: the token ids are synthetic, not TinyStories';
no gradients are accumulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import (
    AdamW,
    Branches,
    Dense,
    Embedding,
    Layer,
    Model,
    MultiHeadAttention,
    Residual,
    RMSNorm,
    Rotary,
    SiLU,
    SoftmaxCrossEntropy,
    Unembedding,
    WarmupCosine,
)
from .layers.branches import MULTIPLY

NORM = RMSNorm(1e-5)
STD = 0.02


@dataclass(frozen=True)
class Llama:
    """Describes a Llama. multiple: of which the width between the dense layers is one.
    key_heads: as many as heads without it.
    """

    vocabulary: int
    length: int
    width: int
    blocks: int
    heads: int
    multiple: int
    key_heads: int | None = None

    @property
    def hidden(self) -> int:
        return self.multiple * math.ceil((8 * self.width // 3) / self.multiple)

    def layers(self) -> tuple[Layer, ...]:
        return (
            Embedding(self.vocabulary, self.width, STD),
            *self.blocks * self.block(),
            NORM,
            Unembedding(self.vocabulary),
        )

    def block(self) -> tuple[Layer, Layer]:
        last = STD / math.sqrt(2 * self.blocks)
        attention = MultiHeadAttention(
            self.heads,
            causal=True,
            bias=False,
            std=STD,
            output_std=last,
            kv_heads=self.key_heads,
            rotary=Rotary(interleaved=True),
        )
        gate, up = Dense(self.hidden, False, STD), Dense(self.hidden, False, last)
        gated = Branches(((gate, SiLU()), (up,)), MULTIPLY)
        return Residual((NORM, attention)), Residual((NORM, gated, Dense(self.width, False, STD)))


def make_model(name: str, llama: Llama, rate: float, beta2: float, decay: float) -> Model:
    return Model(
        name=name,
        input_shape=(llama.length,),
        layers=llama.layers(),
        loss=SoftmaxCrossEntropy(),
        optimizer=AdamW(
            rate,
            beta1=0.9,
            beta2=beta2,
            epsilon=1e-8,
            weight_decay=decay,
            matrices_only=True,
            clip_norm=1.0,
            schedule=WarmupCosine(warmup=1_000, steps=100_000, minimum=0.0),
        ),
        batch_size=128,
        batches=2,
        source=f"karpathy/llama2.c, 2023: {name.replace('llama_', 'stories')}",
    )
