"""Summarize the change of an array by a few numbers; their distance estimates that of changes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

Sketches = Mapping[str, np.ndarray]
"""A sketch of the change of each parameter, by name."""
SKETCH_SIZE = 16
"""Numbers that summarize the change of a weight."""
CHUNK_SIZE = 2**20
"""Values that are sketched at a time."""
SKETCH_SEED = 67


def sketch(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return SKETCH_SIZE numbers for the change of an array: sums of its values with random signs.

    The norm of the difference of two sketches estimates that of the two changes: the standard
    deviation of its square is 35 % (the AMS sketch, Alon, Matias and Szegedy, 1996). It is exact
    for arrays of up to SKETCH_SIZE values.
    """
    random, sums = np.random.default_rng(SKETCH_SEED), np.zeros(SKETCH_SIZE)
    for start in range(0, before.size, CHUNK_SIZE):
        part = slice(start, start + CHUNK_SIZE)
        change = after.ravel()[part].astype(np.float64) - before.ravel()[part]
        change = np.pad(change, (0, -len(change) % SKETCH_SIZE))
        positive = np.unpackbits(random.integers(0, 256, len(change) // 8, np.uint8))
        sums += np.where(positive, change, -change).reshape(-1, SKETCH_SIZE).sum(0)
    return sums


def sketches(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> Sketches:
    """Return the sketch of the change of each parameter."""
    return {name: sketch(before[name], array) for name, array in after.items()}


def difference(a: Sketches, b: Sketches) -> Sketches:
    """Return the sketches of the difference of two changes; what `b` lacks has not changed."""
    return {name: array - b.get(name, 0.0) for name, array in a.items()}


def norm(sketches: Sketches) -> float:
    """Return the norm of all changes together."""
    return math.hypot(*(value for array in sketches.values() for value in array))
