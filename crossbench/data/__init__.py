"""Load the data that a comparison trains on: published files, or synthetic data by a formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..inputs.errors import DataError
from . import cifar10, imdb, mnist, synthetic, synthetic_reviews, synthetic_text, text
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
    text.NIETZSCHE,
    text.SHAKESPEARE,
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
    if where == "auto":
        return str(cifar10.OFFICIAL_FILES.directory())
    _, is_official_form, path = name.partition(f"{cifar10.FORMS.title} files in ")
    return path if is_official_form else None


@dataclass(frozen=True)
class _Loaders:
    """Say how to load a source's data: from a path of a user or in the cache, or by a formula.

    files: the published ones. name: of the data set that they hold. substitute: names the data by a
    formula in the note that says that it is used, with its verb ("synthetic pictures are").
    synthetic: makes that data, from a seed.
    """

    files: OfficialFiles
    name: str
    from_path: Callable[[Path], Dataset]
    substitute: str
    synthetic: Callable[[int], Dataset]

    def load_official(self) -> Dataset:
        """Load the published data from the cache, or download it; else raise DataUnavailable."""
        return replace(self.from_path(self.files.fetch()), name=self.name)


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
        return loaders.load_official()
    except DataUnavailable as reason:
        title = loaders.files.title
        note = f"{title} is not available ({reason}): {loaders.substitute} used instead"
        return replace(loaders.synthetic(seed), note=note)


def _loaders(source: Source, most: int | None) -> _Loaders:
    match source:
        case CIFAR10():
            return _Loaders(
                cifar10.OFFICIAL_FILES,
                cifar10.FORMS.title,
                cifar10.load_path,
                "synthetic pictures are",
                partial(synthetic.load_cifar10, most=most),
            )
        case MNIST():
            return _Loaders(
                mnist.OFFICIAL_FILES,
                mnist.FORMS.title,
                mnist.load_path,
                "synthetic pictures are",
                partial(synthetic.load_mnist, most=most),
            )
        case IMDB():
            return _Loaders(
                imdb.OFFICIAL_FILES,
                imdb.FORMS.title,
                partial(imdb.load_path, source),
                "synthetic reviews are",
                partial(synthetic_reviews.load, source),
            )
        case Text() | TinyShakespeare():
            official = text.NIETZSCHE if isinstance(source, Text) else text.SHAKESPEARE
            return _Loaders(
                official,
                official.title,
                partial(text.load_path, source),
                "a synthetic text is",
                partial(synthetic_text.load, source),
            )
    raise TypeError(f"{type(source).__name__} is not a source of data")
