"""Names devices, and implementations: a framework and one of its variants, as in "torch:tuned"."""

from __future__ import annotations

from typing import Literal

DEVICES = ("cpu", "gpu")
IDIOMATIC = "idiomatic"
"""Name of the variant that every framework has: as its tutorials write the training."""
MALLOC = "malloc"
"""Name of the variant that is the idiomatic one in a process that keeps the memory it frees."""
Compute = Literal["float32", "tf32", "bfloat16"]
"""What a row computes its matrix multiplications and convolutions in."""
FLOAT32: Compute = "float32"
TF32: Compute = "tf32"
BFLOAT16: Compute = "bfloat16"
COMPUTES = (FLOAT32, TF32, BFLOAT16)


def full_name(framework: str, variant: str) -> str:
    """Return "torch:tuned", or, for the idiomatic variant, the framework's name alone."""
    return framework if variant == IDIOMATIC else f"{framework}:{variant}"
