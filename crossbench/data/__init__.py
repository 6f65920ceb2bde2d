"""The data that a comparison trains on: CIFAR-10's own files, or pictures made by a formula."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from . import cifar10, synthetic
from .dataset import Dataset, Split

__all__ = ["Dataset", "Split", "load"]


def load(source: str, seed: int) -> Dataset:
    """The data of "auto", "synthetic" or a directory; DataError where a file is damaged."""
    if source == "synthetic":
        return synthetic.load(seed)
    if source != "auto":
        return cifar10.load_directory(Path(source))
    try:
        return cifar10.load_official()
    except cifar10.Unreachable as reason:
        note = f"CIFAR-10 cannot be had ({reason}): synthetic pictures are used instead"
        return replace(synthetic.load(seed), note=note)
