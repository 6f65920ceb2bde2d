"""Round numbers to the precision in which products are computed: bfloat16 and TensorFloat-32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MANTISSA_BITS = {"bfloat16": 7, "tf32": 10}
"""Bits of the mantissa, by the precision; float32 has 23."""


def rounded(array: np.ndarray, precision: str) -> np.ndarray:
    """Return a float32 array rounded to the precision, to the nearest value, ties to even."""
    dropped = 23 - MANTISSA_BITS[precision]
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    odd = (bits >> dropped) & 1
    half = np.uint32((1 << (dropped - 1)) - 1)
    return ((bits + half + odd) >> dropped << dropped).view(np.float32)


@dataclass(frozen=True)
class Rounding:
    """Say what a training step rounds, and to which precision; sums are in float32.

    everywhere: the operands of products, what layers hand on in both directions, and gradients;
    else the operands alone. A framework's mixed precision rounds at least these and at most those.
    """

    precision: str
    everywhere: bool

    def operand(self, array: np.ndarray) -> np.ndarray:
        return rounded(array, self.precision)

    def handed_on(self, array: np.ndarray) -> np.ndarray:
        is_rounded = self.everywhere and array.dtype.kind == "f"
        return rounded(array, self.precision) if is_rounded else array
