"""Describe attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ...inputs.checks import (
    SIZE,
    TRUE_OR_FALSE,
    Boolean,
    Checked,
    OptionalStd,
    Over0,
    Size,
    instance_of,
    optional,
)
from ..parameters import GlorotUniform, Parameter, Shape, normal_or, weight_and_bias
from .layer import Layer, require_sequence
from .norms import RMSNorm

OptionalSize = Annotated[int | None, optional(SIZE)]
OptionalBoolean = Annotated[bool | None, optional(TRUE_OR_FALSE)]


@dataclass(frozen=True)
class Rotary(Checked):
    """Rotates pairs of features of each query and key by p * base^(-2 i / D), where p is the place
    and i the pair, both from 0 (RoPE; Su et al., 2021): (a, b) becomes (a cos - b sin, b cos +
    a sin).

    A pair are the features i and i + D / 2 of a head, as in Llama and GPT-NeoX; interleaved: 2 i
    and 2 i + 1, as in GPT-J and the paper.
    """

    base: Over0 = 10_000.0
    interleaved: Boolean = False


OptionalRotary = Annotated[Rotary | None, optional(instance_of("a Rotary", Rotary))]
OptionalNorm = Annotated[RMSNorm | None, optional(instance_of("an RMSNorm", RMSNorm))]


@dataclass(frozen=True)
class MultiHeadAttention(Layer):
    """Computes softmax(q k' / sqrt(D)) v in each head, with the heads' results joined and then
    projected (self-attention; Vaswani et al., 2017): (L, F) to (L, F).

    q, k and v are x projected by query_weight, key_weight and value_weight; head h has the features
    from h * D to (h + 1) * D. output_weight projects the joined heads. causal: a place attends to
    itself and those before it alone. bias: whether each projection has one. std, output_std: of the
    first three weights and of the last; Glorot's uniform by default.

    kv_heads: heads of keys and values; head h of the queries has the key head h // (heads /
    kv_heads) (Ainslie et al., 2023). As many as of queries by default. head_features: D, F / heads
    by default. The weights are (heads * D, F) for queries, (kv_heads * D, F) for keys and values,
    and (F, heads * D) for the output. window: a place attends to places that are fewer than so many
    away alone: with causal to itself and the window - 1 before it (Mistral's sliding_window), else
    to those on both sides. rotary: how queries and keys are rotated. norm: of the queries and of
    the keys in each head, before the rotation, each with a weight of (D,). output_bias: whether the
    last projection has a bias; as the others by default.
    """

    heads: Size
    causal: Boolean
    bias: Boolean = True
    std: OptionalStd = None
    output_std: OptionalStd = None
    kv_heads: OptionalSize = None
    head_features: OptionalSize = None
    window: OptionalSize = None
    rotary: OptionalRotary = None
    norm: OptionalNorm = None
    output_bias: OptionalBoolean = None

    @property
    def is_plain(self) -> bool:
        """Return whether it is that of 2017, without a later option."""
        sizes = (self.kv_heads, self.head_features, self.window)
        return {*sizes, self.rotary, self.norm, self.output_bias} == {None}

    @property
    def key_heads(self) -> int:
        """Return the number of heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def has_output_bias(self) -> bool:
        return self.bias if self.output_bias is None else self.output_bias

    def width(self, input_shape: Shape) -> int:
        """Return the features of a head."""
        return self.head_features or input_shape[-1] // self.heads

    def output_shape(self, input_shape: Shape) -> Shape:
        _, features = require_sequence(self, input_shape)
        if self.head_features is None and features % self.heads:
            raise ValueError(f"{self} cannot share {features} features among its heads")
        if self.heads % self.key_heads:
            raise ValueError(f"{self} cannot share {self.key_heads} key heads among its heads")
        if self.norm and not self.norm.affine:
            raise ValueError(f"{self} takes a norm with a weight")
        if self.rotary and self.width(input_shape) % 2:
            raise ValueError(f"{self} cannot rotate pairs of {self.width(input_shape)} features")
        return input_shape

    def parameters(self, input_shape: Shape) -> dict[str, Parameter]:
        features, width = input_shape[-1], self.width(input_shape)
        joined, shared = self.heads * width, self.key_heads * width
        found: dict[str, Parameter] = {}
        for name, outputs in (("query", joined), ("key", shared), ("value", shared)):
            found |= _projection(name, features, outputs, self.bias, self.std)
        found |= _projection("output", joined, features, self.has_output_bias, self.output_std)
        norm = self.norm.parameters((width,)) if self.norm else {}
        for name in ("query_norm", "key_norm"):
            found |= {f"{name}.{weight}": parameter for weight, parameter in norm.items()}
        return found

    def forward_flops(self, input_shape: Shape) -> int:
        """Count the products with a causal mask or a window whole, masked values too (as the PaLM
        paper, 2022, appendix B, does).
        """
        length, features = input_shape
        joined = self.heads * self.width(input_shape)
        output_and_products = 2 * length * joined * (features + 2 * length)
        return self.input_gradient_flops(input_shape) + output_and_products

    def input_gradient_flops(self, input_shape: Shape) -> int:
        length, features = input_shape
        projected = (self.heads + 2 * self.key_heads) * self.width(input_shape)
        return 2 * length * features * projected  # of x before its three projections


def _projection(
    name: str, inputs: int, outputs: int, bias: bool, std: float | None
) -> dict[str, Parameter]:
    weight = Parameter((outputs, inputs), normal_or(GlorotUniform(inputs, outputs), std))
    return {f"{name}_{part}": array for part, array in weight_and_bias(weight, bias).items()}
