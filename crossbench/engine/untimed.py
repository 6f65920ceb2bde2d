"""Measure the calls of a workload that are in no epoch's seconds: work may not move into them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from statistics import median

import numpy as np

from ..results.untimed import UntimedCalls
from .usage import Clock

COPIES = 3
"""How often NumPy copies the arrays of a call; the fastest counts."""
MAX_SAMPLED_BYTES = 2**26
"""Bytes that are copied at most; more take longer in proportion."""


class CallMeter:
    """Measure the calls of one workload, by the name of the method."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[int, list[tuple[float, float]]]] = {}
        self.copies: dict[str, tuple[int, float]] = {}

    @contextmanager
    def measured(self, name: str, parts: int = 1) -> Iterator[None]:
        """Measure what is done within. parts: how many batches that are."""
        clock = Clock.start()
        yield
        wall, cpu = clock.seconds()
        by_parts = self.seconds.setdefault(name, {})
        by_parts.setdefault(parts, []).append((wall / parts, cpu / parts))

    def moves(self, name: str, arrays: Sequence[np.ndarray]) -> None:
        """Measure NumPy's copy of the arrays of a call, or of a batch of it, if it is not known."""
        if name not in self.copies:
            self.copies[name] = len(arrays), copy_seconds(arrays)

    def calls(self) -> dict[str, UntimedCalls]:
        """Return what was measured so far, by name."""
        found = {}
        for name, by_parts in self.seconds.items():
            every = list(chain(*by_parts.values()))
            # the first call with so many batches may compile
            again = list(chain(*(seconds[1:] for seconds in by_parts.values())))
            wall, cpu = zip(*(again or every), strict=True)
            arrays, copy = self.copies.get(name, (0, 0.0))
            found[name] = UntimedCalls(len(every), median(wall), median(cpu), arrays, copy)
        return found


def copy_seconds(arrays: Sequence[np.ndarray]) -> float:
    """Return the seconds in which NumPy copies arrays, pictures (n, c, h, w) to (n, h, w, c)."""
    size = sum(array.nbytes for array in arrays)
    sample, sampled = [], 0
    for array in arrays:
        if sampled < MAX_SAMPLED_BYTES:
            sample.append(array)
            sampled += array.nbytes
    seconds = []
    for _ in range(COPIES):
        clock = Clock.start()
        for array in sample:
            np.array(array.transpose(0, 2, 3, 1) if array.ndim == 4 else array, order="C")
        seconds.append(clock.seconds()[0])
    return min(seconds) * size / max(1, sampled)
