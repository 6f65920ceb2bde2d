"""Says how frameworks with channels last pad a convolution, and which ones they call "same"."""

from __future__ import annotations

from ..models import Convolution, TransposedConv

Pads = tuple[tuple[int, int], ...]
"""Zeros before and after, along each axis."""


def pads_same(layer: Convolution) -> bool:
    """Return whether the padding is what TensorFlow, Keras and JAX call "same", for which a stride
    would need the input's size.
    """
    if isinstance(layer, TransposedConv):
        same = (_halves(w.size + w.stride - 2, w.size - 1) for w in layer.windows)
        return transposed_padding(layer) == tuple(same)
    return all(
        (w.stride, w.before, w.after) == (1, (w.span - 1) // 2, w.span // 2) for w in layer.windows
    )


def _halves(zeros: int, most: int) -> tuple[int, int]:
    """Return the larger half of the zeros, at most so many, and the others."""
    before = min(zeros - zeros // 2, most)
    return before, zeros - before


def transposed_padding(layer: TransposedConv) -> Pads:
    """Return the padding of the input, which has zeros between its values, of the convolution that
    a transposed one is.
    """
    return tuple(
        (w.size - 1 - w.before, w.size - 1 - w.before + more)
        for w, more in zip(layer.windows, layer.output_padding, strict=True)
    )
