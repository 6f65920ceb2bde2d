"""Load the data that a comparison trains on: published files, or synthetic data by a formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..inputs.errors import DataError
from . import (
    cifar10,
    imdb,
    mnist,
    shakespeare,
    synthetic,
    synthetic_reviews,
    synthetic_text,
    text,
)
from .dataset import Dataset, ExampleShapes, Split
from .download import DataUnavailable, OfficialFiles
from .sources import CIFAR10, IMDB, MNIST, Source, Synthetic, Text, TinyShakespeare

__all__ = [
    "OFFICIAL_FILES",
    "Dataset",
    "ExampleShapes",
    "Split",
    "is_synthetic",
    "load",
    "published_path",
]

OFFICIAL_FILES: tuple[OfficialFiles, ...] = (
    cifar10.OFFICIAL_FILES,
    mnist.OFFICIAL_FILES,
    imdb.OFFICIAL_FILES,
    text.OFFICIAL_FILES,
    shakespeare.OFFICIAL_FILES,
)
"""The data sets that "auto" may download."""


def is_synthetic(source: Source, where: str, note: str | None) -> bool:
    """Return whether a formula made the examples.

    where, note: what `load` was given, and the note of what it returned.
    """
    return isinstance(source, Synthetic) or where == "synthetic" or note is not None


def published_path(source: Source, where: str, name: str, note: str | None) -> str | None:
    """Return the folder of CIFAR-10's binary version that the data was loaded from; None for other
    data, and for another form of it.

    where, name, note: what `load` was given, and the name and note of what it returned.
    """
    if not isinstance(source, CIFAR10) or is_synthetic(source, where, note):
        return None
    official = _loaders(source).files
    if where == "auto":
        return str(official.directory())
    _, is_official_form, path = name.partition(f"{official.title} files in ")
    return path if is_official_form else None


@dataclass(frozen=True)
class _Loaders:
    """Say how to load a source's data: as published, from a user's path, or synthetic from a seed.

    files: the published ones. substitute: names the synthetic data in the note that
    says that it is used, with its verb ("synthetic pictures are").
    """

    files: OfficialFiles
    official: Callable[[], Dataset]
    from_path: Callable[[Path], Dataset]
    substitute: str
    synthetic: Callable[[int], Dataset]


def load(
    source: Source,
    where: str,
    seed: int,
    shapes: ExampleShapes | None = None,
    most: int | None = None,
) -> Dataset:
    """Load the source's data from "auto", "synthetic" or a path: a directory or a file.

    auto: the published data, from the cache or downloaded; if it is not available, the synthetic
    data, with a note that says so. seed: of the synthetic data. shapes: those of the model, which
    Synthetic needs. most: how many of the first examples the caller uses; synthetic pictures behind
    them stay black. Raise DataError if a file is missing or damaged.
    """
    if isinstance(source, Synthetic):
        assert shapes is not None
        if where not in ("auto", "synthetic"):
            raise DataError(
                f"{where} cannot be used: this model's examples are always synthetic; use --data "
                "auto or --data synthetic, or name its data, as in Model(..., data=CIFAR10())"
            )
        return synthetic.load(shapes, seed, most)
    loaders = _loaders(source, most)
    if where == "synthetic":
        return loaders.synthetic(seed)
    if where != "auto":
        return loaders.from_path(Path(where))
    try:
        return loaders.official()
    except DataUnavailable as reason:
        note = (
            f"{loaders.files.title} is not available ({reason}): {loaders.substitute} used instead"
        )
        return replace(loaders.synthetic(seed), note=note)


def _loaders(source: Source, most: int | None = None) -> _Loaders:
    match source:
        case CIFAR10():
            return _Loaders(
                cifar10.OFFICIAL_FILES,
                cifar10.load_official,
                cifar10.load_path,
                "synthetic pictures are",
                partial(synthetic.load_cifar10, most=most),
            )
        case MNIST():
            return _Loaders(
                mnist.OFFICIAL_FILES,
                mnist.load_official,
                mnist.load_path,
                "synthetic pictures are",
                partial(synthetic.load_mnist, most=most),
            )
        case IMDB():
            return _Loaders(
                imdb.OFFICIAL_FILES,
                partial(imdb.load_official, source),
                partial(imdb.load_path, source),
                "synthetic reviews are",
                partial(synthetic_reviews.load, source),
            )
        case Text() | TinyShakespeare():
            return _Loaders(
                text.official_files(source),
                partial(text.load_official, source),
                partial(text.load_file, source),
                "a synthetic text is",
                partial(synthetic_text.load, source),
            )
    raise TypeError(f"{type(source).__name__} is not a source of data")
