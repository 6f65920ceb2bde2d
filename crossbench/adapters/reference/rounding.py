"""Round to bfloat16 and TensorFloat-32, as the operands of matrix multiplications are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...inputs.names import BFLOAT16, TF32, Compute

MANTISSA_BITS = {BFLOAT16: 7, TF32: 10}
"""Bits of the mantissa, by the precision; float32 has 23."""


def rounded(array: np.ndarray, precision: Compute) -> np.ndarray:
    """Return a float32 array rounded to the precision, to the nearest value, ties to even."""
    dropped = 23 - MANTISSA_BITS[precision]
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    odd = (bits >> dropped) & 1
    half = np.uint32((1 << (dropped - 1)) - 1)
    return ((bits + half + odd) >> dropped << dropped).view(np.float32)


@dataclass(frozen=True)
class Rounding:
    """Say what a training step rounds, and to which precision; sums are in float32.

    everywhere: round activations and gradients as well as the operands of matrix multiplications
    and convolutions; else the operands alone. A framework's mixed precision rounds at least the
    operands, and at most all of these.
    """

    precision: Compute
    everywhere: bool

    def operand(self, array: np.ndarray) -> np.ndarray:
        return rounded(array, self.precision)

    def activation(self, array: np.ndarray) -> np.ndarray:
        is_rounded = self.everywhere and array.dtype.kind == "f"
        return rounded(array, self.precision) if is_rounded else array
