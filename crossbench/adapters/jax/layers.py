"""Add the modules that flax.nnx lacks or computes differently, each on top of Flax's own."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


class BatchNorm(nnx.BatchNorm):
    """Divide the running variance by n - 1, as the other frameworks do; Flax divides by n."""

    def __call__(self, x: Any) -> Any:
        before = self.var[...]
        y = super().__call__(x)
        if not self.use_running_average:
            n = x.size // x.shape[-1]
            self.var[...] += (self.var[...] - self.momentum * before) / (n - 1)
        return y


class Mask(nnx.Variable):
    """Hold the mask of a dropout that does not draw its own."""


class Dropout(nnx.Dropout):
    """Apply the given mask, if there is one (in the proof of sameness); else be Flax's own."""

    mask: Mask | None = None

    def __call__(self, x: Any) -> Any:
        if self.mask is None:
            return super().__call__(x)
        return x * self.mask[...] / (1 - self.rate)


class Residual(nnx.Module):
    """Add the outputs of the body and of the shortcut."""

    def __init__(self, body: nnx.Module, shortcut: nnx.Module) -> None:
        self.body, self.shortcut = body, shortcut

    def __call__(self, x: Any) -> Any:
        return self.body(x) + self.shortcut(x)


class Unembedding(nnx.Embed):
    """Return the product with the embedding's weight, which `tied` sets."""

    def __call__(self, sequences: Any) -> Any:
        return self.attend(sequences)


def tied(network: nnx.Sequential) -> nnx.Sequential:
    """Have each Unembedding in the network share the weight of its first layer."""
    for _, layer in nnx.iter_modules(network):
        if isinstance(layer, Unembedding):
            layer.embedding = network.layers[0].embedding
    return network


class PositionEmbedding(nnx.Module):
    """Add a weight for each place of a sequence."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.embedding = nnx.Param(jnp.zeros(shape, dtype))

    def __call__(self, sequences: Any) -> Any:
        return sequences + self.embedding[...].astype(sequences.dtype)


class ClassToken(nnx.Module):
    """Put the same weight before each sequence."""

    def __init__(self, features: int, dtype: Any) -> None:
        self.embedding = nnx.Param(jnp.zeros(features, dtype))

    def __call__(self, sequences: Any) -> Any:
        weight = self.embedding[...].astype(sequences.dtype)
        token = jnp.broadcast_to(weight, (len(sequences), 1, len(weight)))
        return jnp.concatenate([token, sequences], axis=1)


class SelfAttention(nnx.MultiHeadAttention):
    """Attend with a causal mask, or with none."""

    def __init__(self, causal: bool, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, attention_fn=attention, decode=False, **options)
        self.causal = causal

    def __call__(self, sequences: Any) -> Any:
        return super().__call__(sequences, is_causal=self.causal)


def attention(query: Any, key: Any, value: Any, is_causal: bool, **unused: Any) -> Any:
    """Call jax.nn.dot_product_attention on (batch, length, heads, features of a head).

    Its softmax is in float32, whatever the arrays are: a float64 job, which is only ever proved,
    has the same formula written out.
    """
    if query.dtype != jnp.float64:
        return jax.nn.dot_product_attention(query, key, value, is_causal=is_causal)
    scores = jnp.einsum("nqhd,nkhd->nhqk", query, key) / query.shape[-1] ** 0.5
    if is_causal:
        scores = jnp.where(jnp.tri(scores.shape[-1], dtype=bool), scores, -jnp.inf)
    return jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores), value)


class Recurrent(nnx.Module):
    """Run a cell, and a second one along the reversed sequence; return the last output of each."""

    def __init__(self, *cells: nnx.RNNCellBase) -> None:
        pairs = zip(cells, (False, True), strict=False)
        self.directions = nnx.List(
            [nnx.RNN(cell, return_carry=True, reverse=reverse) for cell, reverse in pairs]
        )

    def __call__(self, sequences: Any) -> Any:
        carries = [direction(sequences)[0] for direction in self.directions]
        # an LSTM's carry is (c, h)
        last = [carry[1] if isinstance(carry, tuple) else carry for carry in carries]
        return jnp.concatenate(last, axis=-1)


def set_masks(module: nnx.Module, masks: dict[tuple[str, ...], Any]) -> None:
    """Set the masks of the dropouts, by their path in the module."""
    if not masks:
        return
    for path, layer in nnx.iter_modules(module):
        if (mask := masks.get(tuple(map(str, path)))) is not None:
            layer.mask = Mask(mask)
