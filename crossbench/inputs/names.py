"""Names devices, and implementations: a framework and one of its variants, as in "torch:tuned"."""

from __future__ import annotations

DEVICES = ("cpu", "gpu")
IDIOMATIC = "idiomatic"
"""Name of the variant that every framework has: as its tutorials write the training."""
MALLOC = "malloc"
"""Name of the variant that is the idiomatic one in a process that keeps the memory it frees."""


def full_name(framework: str, variant: str) -> str:
    """Return "torch:tuned", or, for the idiomatic variant, the framework's name alone."""
    return framework if variant == IDIOMATIC else f"{framework}:{variant}"
