"""Build the blocks of a transformer, which the GPTs and the vision transformer share."""

from __future__ import annotations

from dataclasses import dataclass

from .layers import GELU, Dense, Layer, LayerNorm, MultiHeadAttention, Residual

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
