"""Cut an array into the windows of convolutions and pools, and add up what is in them.

Arrays are (batch, channels, *size), with as many axes behind the channels as there are windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...models.layers.convolutions import Window


def patches(x: np.ndarray, windows: Sequence[Window], fill: float = 0.0) -> np.ndarray:
    """Return a view of what is in each window, (batch, channels, *counts, *sizes), of the padded
    array.
    """
    sides = [(0, 0), (0, 0), *((w.before, w.after) for w in windows)]
    padded = np.pad(x, sides, constant_values=fill)
    spans, axes = [w.span for w in windows], range(2, x.ndim)
    steps = [*(w.stride for w in windows), *(w.dilation for w in windows)]
    places = (slice(None), slice(None), *(slice(None, None, step) for step in steps))
    return sliding_window_view(padded, spans, tuple(axes))[places]


def summed(
    part: Callable[[tuple[int, ...]], np.ndarray],
    windows: Sequence[Window],
    shape: Sequence[int],
    dtype: np.dtype,
) -> np.ndarray:
    """Return an array of this shape with the sums of what the windows add to each value.

    part: returns what a cell of each window, by its place in the window, adds there, (batch,
    channels, *counts).
    """
    size = shape[2:]
    padded = [w.padded(n) for w, n in zip(windows, size, strict=True)]
    total = np.zeros((*shape[:2], *padded), dtype)
    for cell in np.ndindex(*(w.size for w in windows)):
        axes = zip(cell, windows, size, strict=True)
        starts = [(i * w.dilation, w.stride, w.count(n)) for i, w, n in axes]
        places = (slice(start, start + step * count, step) for start, step, count in starts)
        total[:, :, *places] += part(cell)
    ends = (slice(w.before, w.before + n) for w, n in zip(windows, size, strict=True))
    return total[:, :, *ends]
