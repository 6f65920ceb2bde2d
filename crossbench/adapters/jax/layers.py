"""What flax.nnx has no module for, or computes otherwise, each on top of Flax's own."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx


class BatchNorm(nnx.BatchNorm):
    """Flax divides the variance that it keeps by n, the others by n - 1."""

    def __call__(self, x: Any) -> Any:
        before = self.var[...]
        y = super().__call__(x)
        if not self.use_running_average:
            n = x.size // x.shape[-1]
            self.var[...] += (self.var[...] - self.momentum * before) / (n - 1)
        return y


class Kept(nnx.Variable):
    """Which values a dropout keeps, where it does not draw that itself."""


class Dropout(nnx.Dropout):
    """In the proof of sameness it is given what it keeps; else it is Flax's own."""

    kept: Kept | None = None

    def __call__(self, x: Any) -> Any:
        if self.kept is None:
            return super().__call__(x)
        return x * self.kept[...] / (1 - self.rate)


class Residual(nnx.Module):
    def __init__(self, body: nnx.Module, shortcut: nnx.Module) -> None:
        self.body, self.shortcut = body, shortcut

    def __call__(self, x: Any) -> Any:
        return self.body(x) + self.shortcut(x)


class Recurrent(nnx.Module):
    """One cell, or a second one that goes from the end to the start: the last output of each."""

    def __init__(self, *cells: nnx.RNNCellBase) -> None:
        ways = zip(cells, (False, True), strict=False)
        self.directions = nnx.List(
            [nnx.RNN(cell, return_carry=True, reverse=reverse) for cell, reverse in ways]
        )

    def __call__(self, sequences: Any) -> Any:
        carries = [direction(sequences)[0] for direction in self.directions]
        # an LSTM's carry is (c, h)
        last = [carry[1] if isinstance(carry, tuple) else carry for carry in carries]
        return jnp.concatenate(last, axis=-1)


def keep(module: nnx.Module, masks: dict[tuple[str, ...], Any]) -> None:
    """Give each dropout, by its path, what it keeps."""
    if not masks:
        return
    for path, layer in nnx.iter_modules(module):
        if (mask := masks.get(tuple(map(str, path)))) is not None:
            layer.kept = Kept(mask)
