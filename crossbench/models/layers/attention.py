"""Describe attention."""

from __future__ import annotations

from dataclasses import dataclass

from ...inputs.checks import Boolean, OptionalStd, Size
from ..parameters import GlorotUniform, Parameter, Shape, Zeros, normal_or
from .layer import Layer, require_sequence


@dataclass(frozen=True)
class MultiHeadAttention(Layer):
    """Computes softmax(q k' / sqrt(D)) v in each head, with the heads' results joined and then
    projected (self-attention; Vaswani et al., 2017): (L, F) to (L, F).

    q, k and v are x projected by query_weight, key_weight and value_weight, each (F, F); head h has
    the features from h * D to (h + 1) * D, where D = F / heads. output_weight (F, F) projects the
    joined heads. causal: a place attends to itself and those before it alone. bias: whether each
    projection has one. std, output_std: of the first three weights and of the last; Glorot's
    uniform by default.
    """

    heads: Size
    causal: Boolean
    bias: Boolean = True
    std: OptionalStd = None
    output_std: OptionalStd = None

    def output_shape(self, input_shape: Shape) -> Shape:
        _, features = require_sequence(self, input_shape)
        if features % self.heads:
            raise ValueError(f"{self} cannot share {features} features among its heads")
        return input_shape

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        features = input_shape[-1]
        stds = dict.fromkeys(("query", "key", "value"), self.std) | {"output": self.output_std}
        found = {}
        for name, std in stds.items():
            initializer = normal_or(GlorotUniform(features, features), std)
            found[f"{name}_weight"] = Parameter((features, features), initializer)
            if self.bias:
                found[f"{name}_bias"] = Parameter((features,), Zeros())
        return found

    def forward_flops(self, input_shape: Shape) -> int:
        """Count the products with a causal mask whole, masked values too (as the PaLM paper, 2022,
        appendix B, does).
        """
        length, features = input_shape
        return 2 * length * features * (4 * features + 2 * length)

    def input_gradient_flops(self, input_shape: Shape) -> int:
        length, features = input_shape
        return 3 * 2 * length * features * features  # of x before its three projections
