"""Change what the module of a training has made, so that it computes in float64: for the proof."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


def set_dtype(model: Any) -> None:
    """Have a model of float32 compute in float64, of weights in float64.

    An attention's softmax is in float32 whatever the arrays are: the same formula is written out.
    """
    own = {"dtype": jnp.float64, "param_dtype": jnp.float64, "attention_fn": attention}
    model.set_attributes(raise_if_not_found=False, **own)


def attention(
    query: Any, key: Any, value: Any, is_causal: bool, local_window_size: Any = None, **unused: Any
) -> Any:
    """Attend, (batch, length, heads, features of a head), in the arrays' own dtype."""
    shared = query.shape[2] // key.shape[2]
    key, value = jnp.repeat(key, shared, 2), jnp.repeat(value, shared, 2)
    scores = jnp.einsum("nqhd,nkhd->nhqk", query, key) / query.shape[-1] ** 0.5
    places = jnp.arange(scores.shape[-1])
    distance = places[:, None] - places
    if is_causal:
        scores = jnp.where(distance >= 0, scores, -jnp.inf)
    if local_window_size is not None:
        scores = jnp.where(abs(distance) <= local_window_size, scores, -jnp.inf)
    return jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores), value)


def count_in_int64(optimizer: Any) -> None:
    """Count an optimizer's steps in int64: of an int32 optax computes a schedule in float32."""

    def widened(leaf: Any) -> Any:
        return leaf.astype(jnp.int64) if leaf.dtype == jnp.int32 else leaf

    nnx.update(optimizer, jax.tree.map(widened, nnx.state(optimizer)))
