"""Keep arrays that an epoch does not need out of the memory that it is measured with."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterable, Mapping

import numpy as np

ALIGNED = 64
"""Bytes of which the place of each array is a multiple, as the libraries' own are."""


def mapped(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays in memory that `release` can give back; as they are on other systems than
    Linux.
    """
    size = sum(_room(array) for array in arrays.values())
    if sys.platform != "linux" or not size:
        return dict(arrays)
    memory = mmap.mmap(-1, size)  # shared: the kernel keeps what this process gives back
    found, offset = {}, 0
    for name, array in arrays.items():
        flat = np.frombuffer(memory, array.dtype, array.size, offset)
        found[name], offset = flat.reshape(array.shape), offset + _room(array)
        found[name][...] = array
    return found


def release(arrays: Iterable[np.ndarray]) -> None:
    """Take the pages of mapped arrays out of this process's memory. Linux keeps their content, and
    maps them again when they are read.
    """
    maps = {id(memory): memory for memory in map(_memory, arrays) if memory}
    for memory in maps.values():
        memory.madvise(mmap.MADV_DONTNEED)


def _room(array: np.ndarray) -> int:
    """Return the bytes of an array, up to the next multiple of ALIGNED."""
    return -(-array.nbytes // ALIGNED) * ALIGNED


def _memory(array: np.ndarray) -> mmap.mmap | None:
    """Return the memory that an array is mapped to; None where it is in the process's own."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None
