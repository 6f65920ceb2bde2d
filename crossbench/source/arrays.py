"""Writes the arrays that a program reads: its initial weights, and examples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a new file, .npz by their names, or .bin one after the other.

    A .bin file holds the values alone, each array's in C order and its own dtype.
    """
    with open(path, "xb") as file:
        if path.suffix == ".npz":
            np.savez(file, **arrays)  # type: ignore[arg-type]  # a word of its own is bool
            return
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data)
