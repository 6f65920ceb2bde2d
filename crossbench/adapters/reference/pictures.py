"""The layers of pictures: convolution, pools, and to a vector or a sequence."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ... import models
from ...models.model import NamedLayer
from .passes import Outcome, Pass, forward, sum_float64

BLOCK_VALUES = 2**19
"""Values of a convolution's patches that are computed at a time."""


@forward.register
def _(layer: models.Conv, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    (sh, sw), (ph, pw), (kh, kw) = layer.stride, layer.padding, layer.kernel
    (operand,) = run.operands(x)
    padded = np.pad(operand, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    patches = sliding_window_view(padded, (kh, kw), (2, 3))[:, :, ::sh, ::sw]
    parameters = run.parameters(named)
    (kernel,) = run.operands(parameters["weight"])
    height, width = patches.shape[2:4]
    blocks = _blocks(len(x), patches[:1].size)
    y = np.empty((len(x), height, width, layer.features), x.dtype)
    for block in blocks:
        y[block] = np.tensordot(patches[block], kernel, ((1, 4, 5), (1, 2, 3)))

    def backward(dy: np.ndarray) -> np.ndarray:
        dpadded, dkernel = np.zeros_like(padded), np.zeros_like(kernel)
        (doperand,) = run.operands(dy)
        for block in blocks:
            dkernel += np.tensordot(doperand[block], patches[block], ((0, 2, 3), (0, 2, 3)))
            # batch, h, w, channel, kh, kw
            dpatches = np.tensordot(doperand[block], kernel, ((1,), (0,)))
            for i in range(kh):
                for j in range(kw):
                    window = dpadded[block, :, i : i + sh * height : sh, j : j + sw * width : sw]
                    window += dpatches[..., i, j].transpose(0, 3, 1, 2)
        bias = {"bias": sum_float64(dy, (0, 2, 3))} if layer.bias else {}
        run.add_gradients(named, weight=dkernel, **bias)
        return dpadded[:, :, ph : ph + x.shape[2], pw : pw + x.shape[3]]

    y = y.transpose(0, 3, 1, 2)
    return y + parameters["bias"][:, None, None] if layer.bias else y, backward


def _blocks(examples: int, values: int) -> list[slice]:
    """Return slices of a batch whose patches, of so many values per example, fit the caches."""
    size = max(1, BLOCK_VALUES // values)
    return [slice(start, start + size) for start in range(0, examples, size)]


@forward.register
def _(layer: models.MaxPool, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    (sh, sw), (kh, kw) = layer.stride, layer.window
    windows = sliding_window_view(x, (kh, kw), (2, 3))[:, :, ::sh, ::sw]
    flat = windows.reshape(*windows.shape[:4], kh * kw)
    largest = flat.max(-1, keepdims=True)
    near = flat >= largest - np.sqrt(np.finfo(x.dtype).eps) * np.abs(largest)
    # exact ties, such as the zeros that a ReLU leaves, are harmless: all get the same gradient
    run.near_ties += int(((flat != largest) & near).any(-1).sum())
    winner = near.argmax(-1) if x.dtype == np.float32 else flat.argmax(-1)
    height, width = winner.shape[2:]

    def backward(dy: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        for cell in range(kh * kw):
            i, j = divmod(cell, kw)
            window = dx[:, :, i : i + sh * height : sh, j : j + sw * width : sw]
            window += np.where(winner == cell, dy, 0)
        return dx

    return largest[..., 0], backward


@forward.register
def _(layer: models.AveragePool, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    (sh, sw), (ph, pw), (kh, kw) = layer.stride, layer.padding, layer.window
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    y = sliding_window_view(padded, (kh, kw), (2, 3))[:, :, ::sh, ::sw].mean((-2, -1))
    height, width = y.shape[2:]

    def backward(dy: np.ndarray) -> np.ndarray:
        dpadded = np.zeros_like(padded)
        for i in range(kh):
            for j in range(kw):
                dpadded[:, :, i : i + sh * height : sh, j : j + sw * width : sw] += dy / (kh * kw)
        return dpadded[:, :, ph : ph + x.shape[2], pw : pw + x.shape[3]]

    return y, backward


@forward.register
def _(layer: models.GlobalAveragePool, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    axes = (1,) if x.ndim == 3 else (2, 3)
    count = np.prod([x.shape[axis] for axis in axes]).astype(x.dtype)
    return x.mean(axes), lambda dy: np.broadcast_to(np.expand_dims(dy / count, axes), x.shape)


@forward.register
def _(layer: models.Flatten, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    return x.reshape(len(x), -1), lambda dy: dy.reshape(x.shape)


@forward.register
def _(layer: models.ToSequence, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    y = x.reshape(*x.shape[:2], -1).transpose(0, 2, 1)
    return y, lambda dy: dy.transpose(0, 2, 1).reshape(x.shape)
