"""How far a tensor is from the reference's."""

from __future__ import annotations

import math

import numpy as np

from ...models import Weights
from .tensors import TRAINED_SUFFIXES


def compare(
    observed: Weights, expected: Weights, scales: dict[str, float]
) -> dict[str, float | None]:
    """Return the deviation of each tensor that has a scale; None where it is not finite.

    Raises ValueError where a tensor is missing or has another shape than the reference's.
    """
    if observed.keys() != expected.keys():
        names = ", ".join(sorted(observed.keys() ^ expected.keys()))
        raise ValueError(f"not in both the adapter and the reference: {names}")
    return {
        name: deviation(name, observed[name], expected[name], scale)
        for name, scale in scales.items()
    }


def deviation(name: str, a: np.ndarray, b: np.ndarray, scale: float) -> float | None:
    """Return the norm of a - b, divided by the scale; None where that is not finite."""
    if a.shape != b.shape:
        raise ValueError(f"{name} has the shape {a.shape}, the reference's is {b.shape}")
    difference = norm(name, a.astype(np.float64) - b)
    ratio = 0.0 if difference == 0 else difference / scale if scale else math.inf
    return ratio if math.isfinite(ratio) else None


def norm(name: str, array: np.ndarray) -> float:
    """Return the Euclidean norm, or, for weights after the steps, the sum of absolute values.

    Adam makes a full-size change out of a gradient near 0: where rounding flips the sign of one
    value in a million, that value dominates the Euclidean norm.
    """
    return float(np.linalg.norm(array.ravel(), 1 if name.endswith(TRAINED_SUFFIXES) else 2))
