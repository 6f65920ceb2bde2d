"""Train in JAX as fast as it can be made on a CPU.

What takes the time in the idiomatic step, and what is done about it:

- The activations of a large batch do not fit the caches. The batch is cut into pieces, one after
  the other in a loop of one program, whose gradients are added.
- XLA's convolution takes a slow path in such a loop, and outside of it the gradient of the kernel
  is slow. A convolution is a matrix multiplication of patches here, with the windows of the
  max-pool behind it as features (patches.py).
- The gradient of a max-pool is XLA's "select and scatter". A max-pool whose windows do not overlap
  is a chain of comparisons of the values at the same place of each window. The maximum over two
  axes of a reshaped array is as fast, but its gradient, which asks which values equal the maximum,
  was wrong behind two convolutions with batch norms: bignet's gradients were off by 0.7.
- At the end of each operation one core waits for the other. JAX can make several devices out of one
  CPU: two of them train on pieces of their own, at the same time.
- The kernel clears each page of a large array that was freed and is allocated anew. In the
  environment of this variant the C library keeps the memory that is freed.

Which part matters, by benchmarks/ladder.py on two cores of an AMD EPYC (Zen 5), the seconds of an
epoch in one run relative to the idiomatic row's: on the LeNet memory that is kept takes 0.33,
pieces and patches on one device 0.12 to 0.16, on two devices 0.08 to 0.11; on mnist_cnn 0.41, 0.24
and 0.25, where the second device brings nothing; on text_lstm 0.74, 0.73 to 0.77 and 0.56; on
gpt_char 0.79, 0.77 to 0.80 and 0.68 to 0.72. The max-pool of comparisons alone takes 0.66 of the
LeNet's time and 0.76 of mnist_cnn's. Pieces keep their memory: the environment brings little there.

Recurrent layers stay as they are: multiplying all their inputs at once, before the loop, made the
training slower, and so did unrolling the loop.

How many pieces are best is tried on the first batch, in the first epoch, which compiles a program
for each number and device. A model with a batch norm, which needs the whole batch at once, stays as
it is: it is not cut, and another max-pool made bignet slower (0.85 times as fast). On a GPU nothing
is cut: its proof passed on an H100, nobody has timed it.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ... import models
from ...models.model import Model, NamedLayer, Weights
from ...models.reordered import pool_before_relu
from ...source.layers import LayerSource
from ...source.statements import call, unless
from ...workload import Batches, Job
from .patches import PatchConv
from .source import OWN_LAYERS, Dtypes
from .workload import JaxWorkload

SIZES = (20, 8)
"""Examples of a piece, about, that are tried beside the whole batch and its halves."""
ATTEMPTS = 3
"""How often each number of pieces is timed; the fastest counts."""
DEVICES = 2
"""Devices that the CPU becomes, at most; more of them were never tried."""
CUT = (models.Convolution, models.LSTM, models.GRU, models.MultiHeadAttention)
"""Layers whose activations are large. A model without one of them stays as it is: where the CPU was
two devices, mnist_mlp took 1.40 [1.37–1.46] times as long, and mlp7_relu 1.30 [1.06–1.44] times."""
LARGE = (models.Convolution, models.Embedding)
"""Layers with large arrays or gradients, whose memory one arena keeps where the model is not cut:
imdb_fasttext took 0.50 [0.45-0.54] times as long with it, 1.18 [1.15-1.20] times without."""
M_ARENA_MAX = -8
"""The parameter of mallopt(3) that MALLOC_ARENA_MAX sets."""


class TunedWorkload(JaxWorkload):
    """Train by pieces of a batch, with layers that XLA trains faster."""

    def __init__(self, job: Job) -> None:
        self.cuts = job.device == "cpu" and gains_by_pieces(job.model)
        count = min(DEVICES, job.threads)
        if self.cuts:
            with suppress(RuntimeError):  # JAX has its devices already: a worker's second workload
                jax.config.update("jax_num_cpu_devices", count)
        elif any(isinstance(named.layer, LARGE) for named in job.model.all_layers()):
            share_one_arena()
        model = pool_before_relu(job.model) if self.cuts else job.model
        self.pools = _pooled(model.named_layers())
        super().__init__(replace(job, model=model))
        self.devices = jax.devices("cpu")[:count] if self.cuts else [self.device]
        self.batch_size = 0
        self.pieces: int | None = None
        self.whole_step, self.step = self.step, self._step
        self.backward = self._backward
        piece = nnx.merge(self.module.model_graphdef, self.shapes)
        piece.set_attributes(PatchConv, in_pieces=True, raise_if_not_found=False)
        of_piece = self.imported()
        of_piece.model_graphdef = nnx.graphdef(piece)
        self.piece_gradients = of_piece.compute_gradients.__wrapped__  # in a loop, which is jitted
        self.share = jax.jit(self.untraced_share, static_argnums=2)
        self.update = jax.jit(self.untraced_update, donate_argnums=0, static_argnums=3)
        self.total = jax.jit(self.untraced_total, static_argnums=1)
        self.source_code = ""  # it takes other steps than what is written there

    def untraced_share(self, parameters: Any, others: Any, count: int, batch: Any) -> Any:
        """Return `others` after `count` pieces, with the sums of their losses and gradients; and
        the outputs where there is no loss.
        """
        has_loss = not isinstance(self.model.loss, models.GivenGradient)

        def add(carry: Any, piece: Any) -> Any:
            others, sums = carry
            gradients, others, kept = self.piece_gradients(parameters, others, piece)
            loss, outputs = (kept, None) if has_loss else (zero, kept)
            return (others, jax.tree.map(jnp.add, sums, (loss, gradients))), outputs

        pieces = jax.tree.map(lambda array: array.reshape(count, -1, *array.shape[1:]), batch)
        zero = jnp.zeros((), self.dtype)
        sums = (zero, jax.tree.map(jnp.zeros_like, parameters))
        return jax.lax.scan(add, (others, sums), pieces)

    def untraced_update(self, state: Any, others: Any, sums: Any, pieces: int) -> Any:
        """Return the state after a step, and its loss.

        sums: the devices' sums of the losses and gradients of so many pieces.
        """
        loss, gradients = self.untraced_total(sums, pieces)
        model, optimizer = nnx.merge(self.module.graphdef, state)
        nnx.update(model, others)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), loss

    def untraced_total(self, sums: Any, pieces: int) -> Any:
        """Return the loss and the gradients of a batch, from the devices' sums of its pieces'."""
        parts = pieces if self.model.loss.is_mean else 1
        return jax.tree.map(lambda *arrays: sum(arrays) / parts, *sums)

    def layer_source(self, named: NamedLayer, dtypes: Dtypes) -> LayerSource:
        if not self.cuts:
            return super().layer_source(named, dtypes)
        layer: Any = named.layer
        if _has_patches(layer):
            pool: Any = self.pools[named.name].layer if named.name in self.pools else None
            options = {
                "window": pool and pool.window,
                "strides": layer.stride,
                "padding": [(w.before, w.after) for w in layer.windows],
                "use_bias": unless(True, layer.bias),
            }
            kernel = (named.input_shape[0], layer.features, layer.kernel)
            build = call("PatchConv", *kernel, **options, **dtypes, rngs="rngs")
            return LayerSource(build, definitions=(OWN_LAYERS,))
        if named in self.pools.values():
            return LayerSource(None, "{x}")
        if _disjoint(named):
            pooled = f"disjoint_max_pool({{x}}, {layer.window})"
            return LayerSource(None, pooled, definitions=(OWN_LAYERS,))
        return super().layer_source(named, dtypes)

    def load_weights(self, weights: Weights) -> None:
        super().load_weights(weights)
        _, others = self.split()
        self.more_others = [_with_other_keys(others, device) for device in self.devices[1:]]

    def place(self, batches: Batches) -> None:
        super().place(batches)
        if batches.batch_size != self.batch_size:
            self.batch_size, self.pieces = batches.batch_size, None if self.cuts else 1

    def details(self) -> dict[str, str]:
        if self.pieces is None:
            return super().details()
        pieces = "1" if self.pieces == 1 else f"{self.pieces} on {len(self.devices)} CPU devices"
        return super().details() | {"pieces of a batch": pieces}

    def allocated(self) -> int | None:
        return None  # the step is several programs

    def _step(self, state: Any, batch: Any) -> Any:
        if self.pieces == 1:
            return self.whole_step(state, batch)
        parameters, others = nnx.split_state(state[0], nnx.Param, ...)
        pieces = self._decided(parameters, others, batch)
        if pieces == 1:
            return self.whole_step(state, batch)
        others, sums = self._own_sums(pieces, parameters, others, batch)
        return self.update(state, others, sums, pieces)

    def _backward(self, parameters: Any, others: Any, batch: Any) -> Any:
        pieces = self._decided(parameters, others, batch)
        if pieces == 1:
            return self.module.compute_gradients(parameters, others, batch)
        others, sums = self._own_sums(pieces, parameters, others, batch)
        loss, gradients = self.total(sums, pieces)
        return gradients, others, loss

    def _decided(self, parameters: Any, others: Any, batch: Any) -> int:
        """Return the number of pieces of a batch, which the first one decides."""
        if self.pieces is None:
            self.pieces = self._fastest(parameters, others, batch)
        return self.pieces

    def _own_sums(self, pieces: int, parameters: Any, others: Any, batch: Any) -> Any:
        """Return `others` of the first device and the sums, as `_sums`; keep the other devices'."""
        all_others = [others, *self.more_others]
        (others, *self.more_others), sums = self._sums(pieces, parameters, all_others, batch)
        return others, sums

    def _sums(self, pieces: int, parameters: Any, others: list[Any], batch: Any) -> Any:
        """Return the devices' `others` and their sums of the pieces' losses and gradients.

        Each device gets a share of the pieces. The sums are on the first one.
        """
        size, others, sums = len(batch[1]) // pieces, list(others), []
        counts = [len(share) for share in np.array_split(range(pieces), len(self.devices))]
        ends, work = accumulate(counts, initial=0), []
        for device, (start, end) in zip(self.devices, pairwise(ends), strict=True):
            examples = slice(start * size, end * size)
            part = jax.tree.map(lambda array, examples=examples: array[examples], batch)
            work.append(jax.device_put((parameters, part), device))
        # only now: a device would cut the batch behind its own share
        for index, (own, part) in enumerate(work):
            if counts[index]:
                (others[index], total), _ = self.share(own, others[index], counts[index], part)
                sums.append(total)
        return others, jax.device_put(sums, self.device)

    def _fastest(self, parameters: Any, others: Any, batch: Any) -> int:
        """Return the number of pieces that trains the batch fastest; change nothing."""
        length = len(batch[1])
        numbers = [1, *(_pieces(length, size) for size in (length // 2, *SIZES))]
        seconds = dict.fromkeys(numbers, float("inf"))
        for attempt in range(1 + ATTEMPTS):  # the first one compiles
            for pieces, before in seconds.items():
                start = time.perf_counter()
                if pieces == 1:
                    gradients = self.module.compute_gradients(parameters, others, batch)
                else:
                    all_others = [others, *self.more_others]
                    gradients = self._sums(pieces, parameters, all_others, batch)
                jax.block_until_ready(gradients)
                if attempt:
                    seconds[pieces] = min(before, time.perf_counter() - start)
        return min(seconds, key=lambda pieces: seconds[pieces])


def gains_by_pieces(model: Model) -> bool:
    """Return whether pieces of a batch may be faster, and give the same gradients."""
    layers = [named.layer for named in model.all_layers()]
    normed = any(isinstance(layer, models.BatchNorm) for layer in layers)
    return not normed and any(isinstance(layer, CUT) for layer in layers)


def _pooled(layers: Iterable[NamedLayer]) -> dict[str, NamedLayer]:
    """Return the max-pool, of windows that do not overlap, behind a convolution, by its name."""
    return {
        named.name: pool
        for named, pool in pairwise(layers)
        if _has_patches(named.layer) and named.layer.stride == (1, 1) and _disjoint(pool)
    }


def _has_patches(layer: models.Layer) -> TypeGuard[models.Conv]:
    """Return whether PatchConv computes this layer."""
    return isinstance(layer, models.Conv) and layer.groups == 1 and layer.dilation == (1, 1)


def share_one_arena() -> None:
    """Have all threads of JAX, which are yet to start, allocate from glibc's first arena.

    The heaps of the others are given back to the kernel where they are empty, see MALLOC_VARIANT.
    Pieces of a batch need little memory at a time, and their threads would wait for one another, as
    those of a model of dense layers do: mlp7_relu took 1.08 [1.03-1.19] times as long with one
    arena, 0.97 [0.93-1.02] times with several.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _disjoint(named: NamedLayer) -> bool:
    pool = named.layer
    return isinstance(pool, models.MaxPool) and pool.window == pool.stride and not any(pool.padding)


def _with_other_keys(others: Any, device: Any) -> Any:
    """Return `others` on another device, whose dropouts draw other masks."""

    def other_key(leaf: Any) -> Any:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.fold_in(leaf, device.id) if is_key else leaf

    return jax.device_put(jax.tree.map(other_key, others), device)


def _pieces(length: int, size: int) -> int:
    """Return the number of equal pieces of a batch, of at least `size` examples each."""
    return next(
        length // n for n in range(max(1, min(size, length)), length + 1) if length % n == 0
    )


WORKLOAD = TunedWorkload
