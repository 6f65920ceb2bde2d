"""The data that a comparison trains on: published files, or a stand-in made by a formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..errors import DataError
from . import cifar10, imdb, mnist, synthetic, synthetic_reviews, synthetic_text, text
from .dataset import Dataset, Split
from .download import Official, Unreachable
from .sources import CIFAR10, IMDB, MNIST, Pictures, Source, Text

__all__ = ["OFFICIAL", "Dataset", "Split", "load"]

OFFICIAL: tuple[Official, ...] = (
    cifar10.OFFICIAL,
    mnist.OFFICIAL,
    imdb.OFFICIAL,
    text.OFFICIAL,
)
"""All that "auto" may download."""


@dataclass(frozen=True)
class _Ways:
    """How a source's data is had: the published, a user's own, and the stand-in of a seed.

    title: of the published; stand_in: in words, with its verb.
    """

    title: str
    official: Callable[[], Dataset]
    own: Callable[[Path], Dataset]
    stand_in: str
    synthetic: Callable[[int], Dataset]


def load(source: Source, where: str, seed: int) -> Dataset:
    """The source's data from "auto", "synthetic" or a path: a directory, or a file for Text.

    auto: the published data from the cache, or downloaded; else the stand-in, and a note that says
    so. seed: of the stand-in. DataError where a file is missing or damaged.
    """
    if isinstance(source, Pictures):
        return _formula(source, where, seed)
    ways = _ways(source)
    if where == "synthetic":
        return ways.synthetic(seed)
    if where != "auto":
        return ways.own(Path(where))
    try:
        return ways.official()
    except Unreachable as reason:
        note = f"{ways.title} cannot be had ({reason}): {ways.stand_in} used instead"
        return replace(ways.synthetic(seed), note=note)


def _ways(source: Source) -> _Ways:
    match source:
        case CIFAR10():
            return _Ways(
                cifar10.OFFICIAL.title,
                cifar10.load_official,
                cifar10.load_directory,
                "synthetic pictures are",
                synthetic.load,
            )
        case MNIST():
            return _Ways(
                mnist.OFFICIAL.title,
                mnist.load_official,
                mnist.load_directory,
                "synthetic pictures are",
                synthetic.digits,
            )
        case IMDB():
            return _Ways(
                imdb.OFFICIAL.title,
                partial(imdb.load_official, source),
                partial(imdb.load_directory, source),
                "synthetic reviews are",
                partial(synthetic_reviews.load, source),
            )
        case Text():
            return _Ways(
                text.OFFICIAL.title,
                partial(text.load_official, source),
                partial(text.load_file, source),
                "a synthetic text is",
                partial(synthetic_text.load, source),
            )
    raise TypeError(f"{type(source).__name__} is no source of data")


def _formula(source: Pictures, where: str, seed: int) -> Dataset:
    if where not in ("auto", "synthetic"):
        raise DataError(
            f"{where} cannot be used: this model's pictures exist by formula only; "
            "--data takes auto or synthetic"
        )
    return synthetic.large(source, seed)
