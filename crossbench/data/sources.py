"""Which data a model is trained on, described without loading anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..checks import Checked, Size, Truth, UpTo1, one_of, optional, whole


@dataclass(frozen=True)
class Augmentation(Checked):
    """What is done to each picture anew in each epoch, by draws that all frameworks share.

    shift: up or down and left or right by at most this fraction of the size, in whole pixels; what
        comes into view repeats the edge.
    flip: left to right, one picture in two.
    """

    shift: UpTo1
    flip: Truth


AUGMENTATION = optional(one_of("an Augmentation", Augmentation))
NO_AUGMENTATION = one_of("None, for pictures alone are augmented", type(None))


@dataclass(frozen=True)
class Source(Checked):
    """Where the examples come from. What it gives fits the models that name it."""

    augmentation: Annotated[Augmentation | None, AUGMENTATION] = None
    """Where there is one, the epoch is streamed: each batch is made when its turn comes."""


@dataclass(frozen=True)
class CIFAR10(Source):
    """Pictures (3, 32, 32) of 10 classes."""


@dataclass(frozen=True)
class MNIST(Source):
    """Digits (1, 28, 28) of 10 classes."""


@dataclass(frozen=True)
class Pictures(Source):
    """Pictures (3, size, size) made by a formula, for models whose own were never published."""

    size: Size = 256
    classes: Annotated[int, whole(1, 256)] = 4


@dataclass(frozen=True, kw_only=True)
class IMDB(Source):
    """Film reviews as sequences of word numbers (length,), of 2 classes: bad and good.

    words: the most frequent ones that have a number of their own; the others share one.
    bigrams: pairs of neighbouring words that occur in the training reviews are numbered too, and
        follow a review's words.
    """

    words: Annotated[int, whole(4, 1_000_000)]  # numbers below 4 are no words
    length: Annotated[int, whole(1, 10_000)]
    bigrams: Truth = False
    augmentation: Annotated[None, NO_AUGMENTATION] = None


@dataclass(frozen=True, kw_only=True)
class Text(Source):
    """Pieces of a text as sequences of character numbers (length,); the label is the character
    that follows. A piece starts every `step` characters.
    """

    length: Annotated[int, whole(1, 10_000)]
    step: Size
    augmentation: Annotated[None, NO_AUGMENTATION] = None


SOURCES = (CIFAR10, MNIST, Pictures, IMDB, Text)
