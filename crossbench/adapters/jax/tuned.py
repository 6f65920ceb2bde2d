"""Train in JAX as fast as it can be made on a CPU.

What was changed, and what each change brought in trials on two cores:

- The gradient of a max-pool is XLA's "select and scatter". A max-pool whose windows do not overlap
  is a chain of comparisons of the values at the same place of each window: the LeNet was 1.3 times
  as fast, the CNNs 1.1 to 1.3 times. The maximum over two axes of a reshaped array is as fast, but
  its gradient, which asks which values equal the maximum, was wrong behind two convolutions with
  batch norms: bignet's gradients were off by 0.7.
- The activations of a large batch do not fit the caches. The batch is cut into pieces whose
  gradients are added: with both changes the LeNet was three times as fast, the CNNs 1.6 to 2 times,
  text_lstm 1.3 times.
- At the end of each operation one core waits for the other. JAX can make several devices out of one
  CPU: two of them train on pieces of their own, at the same time. The LeNet was 1.5 times as fast
  as with one device, mnist_cnn 1.4 times.

Recurrent layers stay as they are: multiplying all their inputs at once, before the loop, made the
training slower, and so did unrolling the loop. A max-pool before its ReLU brought nothing: XLA
computes both at once.

How many pieces are best is tried on the first batch, in the first epoch, which compiles a program
for each number and device. A model with a batch norm, which needs the whole batch at once, stays as
it is: it is not cut, and such a max-pool made bignet slower (0.85 times as fast). On a GPU nothing
is cut; nobody has seen that run yet.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import time
from contextlib import suppress
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ...models.layers import BatchNorm, MaxPool
from ...models.model import NamedLayer, Weights
from ...workload import Batches, Job
from . import JaxWorkload

SIZES = (20, 8)
"""Examples of a piece, about, that are tried beside the whole batch and its halves."""
ATTEMPTS = 3
"""How often each number of pieces is timed; the fastest counts."""
DEVICES = 2
"""Devices that the CPU becomes, at most; more of them were never tried."""


class DisjointMaxPool:
    """Take the maximum of windows that do not overlap; (N, H, W, C), a rest is left out."""

    def __init__(self, window: tuple[int, int]) -> None:
        self.window = window

    def __call__(self, x: Any) -> Any:
        (_, height, width, _), (h, w) = x.shape, self.window
        x = x[:, : height // h * h, : width // w * w]
        values = (x[:, row::h, column::w] for row in range(h) for column in range(w))
        return reduce(lambda a, b: jnp.where(a >= b, a, b), values)


class TunedWorkload(JaxWorkload):
    """Train by pieces of a batch, with layers that XLA trains faster."""

    def __init__(self, job: Job) -> None:
        count = min(DEVICES, job.threads)
        with suppress(RuntimeError):  # JAX has its devices already: a worker's second workload
            jax.config.update("jax_num_cpu_devices", count)
        self.normed = any(isinstance(named.layer, BatchNorm) for named in job.model.all_layers())
        super().__init__(job)
        self.cuts = job.device == "cpu" and not self.normed
        self.devices = jax.devices("cpu")[:count] if self.cuts else [self.device]
        self.pieces: int | None = None
        self.whole_step, self.step = self.step, self._step

        def zeros(parameters: Any) -> Any:
            return jax.tree.map(jnp.zeros_like, (jnp.zeros((), self.dtype), parameters))

        def add_piece(
            parameters: Any, others: Any, sums: Any, index: Any, size: int, *batch: Any
        ) -> Any:
            """Add the loss and the gradients of the piece of this index; return `others` too."""
            piece = jax.tree.map(
                lambda array: jax.lax.dynamic_slice_in_dim(array, index * size, size), batch
            )
            (loss, others), gradients = self.differentiated(parameters, others, *piece)
            return others, jax.tree.map(jnp.add, sums, (loss, gradients))

        def update(parameters: Any, state: Any, sums: Any, pieces: Any) -> Any:
            loss, gradients = jax.tree.map(lambda *arrays: sum(arrays) / pieces, *sums)
            updates, state = self.optimizer.update(gradients, state, parameters)
            return optax.apply_updates(parameters, updates), state, loss

        self.zeros = jax.jit(zeros)
        self.add_piece = jax.jit(add_piece, static_argnums=4, donate_argnums=2)
        self.update = jax.jit(update, donate_argnums=(0, 1), static_argnums=3)

    def build_layer(self, named: NamedLayer, options: dict[str, Any], build: Any) -> Any:
        layer = named.layer
        if isinstance(layer, MaxPool) and layer.window == layer.stride and not self.normed:
            return DisjointMaxPool(layer.window)
        return super().build_layer(named, options, build)

    def load_weights(self, weights: Weights) -> None:
        super().load_weights(weights)
        self.more_others = [_with_other_keys(self.others, d) for d in self.devices[1:]]

    def place(self, batches: Batches) -> None:
        super().place(batches)
        self.pieces = None

    def details(self) -> dict[str, str]:
        if self.pieces is None:
            return super().details()
        pieces = "1" if self.pieces == 1 else f"{self.pieces} on {len(self.devices)} CPU devices"
        return super().details() | {"pieces of a batch": pieces}

    def allocated(self) -> int | None:
        return None  # the step is several programs

    def _step(self, parameters: Any, state: Any, others: Any, *batch: Any) -> Any:
        if self.pieces is None:
            self.pieces = self._fastest(parameters, others, *batch)
        if self.pieces == 1:
            return self.whole_step(parameters, state, others, *batch)
        all_others = [others, *self.more_others]
        (others, *self.more_others), sums = self._sums(self.pieces, parameters, all_others, *batch)
        parameters, state, loss = self.update(parameters, state, sums, self.pieces)
        return parameters, state, others, loss

    def _sums(self, pieces: int, parameters: Any, others: list[Any], *batch: Any) -> Any:
        """Return the devices' `others` and their sums of the pieces' losses and gradients.

        Each device gets a share of the pieces. The sums are on the first one.
        """
        size, others = len(batch[1]) // pieces, list(others)
        shares = np.array_split(range(pieces), len(self.devices))
        work = []
        for device, share in zip(self.devices, shares, strict=True):
            examples = slice(share[0] * size, (share[-1] + 1) * size) if len(share) else slice(0)
            part = jax.tree.map(lambda array, examples=examples: array[examples], batch)
            work.append(jax.device_put((parameters, part), device))
        sums = [self.zeros(own) for own, _ in work]
        for index in range(len(shares[0])):
            for device, (own, part) in enumerate(work):
                if index < len(shares[device]):
                    others[device], sums[device] = self.add_piece(
                        own, others[device], sums[device], index, size, *part
                    )
        return others, jax.device_put(sums, self.device)

    def _fastest(self, parameters: Any, others: Any, *batch: Any) -> int:
        """Return the number of pieces that trains the batch fastest; change nothing."""
        if not self.cuts:
            return 1
        length = len(batch[1])
        numbers = [1, *(_pieces(length, size) for size in (length // 2, *SIZES))]
        seconds = dict.fromkeys(numbers, float("inf"))
        for attempt in range(1 + ATTEMPTS):  # the first one compiles
            for pieces, before in seconds.items():
                start = time.perf_counter()
                all_others = [others, *self.more_others]
                jax.block_until_ready(self._sums(pieces, parameters, all_others, *batch))
                if attempt:
                    seconds[pieces] = min(before, time.perf_counter() - start)
        return min(seconds, key=lambda pieces: seconds[pieces])


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
