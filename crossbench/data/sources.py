"""Describe which data a model is trained on, without loading anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..inputs.checks import Boolean, Checked, Size, UpTo1, instance_of, integer, optional


@dataclass(frozen=True)
class Augmentation(Checked):
    """Changes each picture at random, anew in each epoch, in the same way for all frameworks.

    shift: move it up or down and left or right by at most this fraction of its size, in whole
        pixels; the pixels that come into view repeat the edge.
    flip: mirror one picture in two left to right.
    """

    shift: UpTo1
    flip: Boolean


@dataclass(frozen=True)
class RandomPositions(Checked):
    """Draws each example anew at a random position of a text, the same for all frameworks."""


AUGMENTATION = optional(instance_of("an Augmentation", Augmentation))
POSITIONS = optional(instance_of("RandomPositions()", RandomPositions))
Length = Annotated[int, integer(1, 10_000)]
NO_AUGMENTATION = instance_of("None, because only pictures are augmented", type(None))


@dataclass(frozen=True)
class Source(Checked):
    """Names the data that a model trains on, in the shape that the model takes."""

    augmentation: Annotated[Augmentation | RandomPositions | None, AUGMENTATION] = None
    """If given, the epoch is streamed: each batch is made just before its training step."""


@dataclass(frozen=True)
class CIFAR10(Source):
    """Names CIFAR-10: pictures (3, 32, 32) of 10 classes."""


@dataclass(frozen=True)
class MNIST(Source):
    """Names MNIST: digits (1, 28, 28) of 10 classes."""


@dataclass(frozen=True, kw_only=True)
class IMDB(Source):
    """Names IMDB: film reviews as token ids (length,), of 2 classes: negative and positive.

    words: the number of token ids for words and special tokens; rarer words share one id.
    bigrams: pairs of neighbouring words that occur in the training reviews have ids too, which
        follow a review's words.
    """

    words: Annotated[int, integer(4, 1_000_000)]  # at least 4, because word ids start at 3
    length: Length
    bigrams: Boolean = False
    augmentation: Annotated[None, NO_AUGMENTATION] = None


@dataclass(frozen=True, kw_only=True)
class Text(Source):
    """Names a text, cut into pieces of `length` characters as token ids (length,), each labelled
    with the character that follows it. A piece starts every `step` characters.
    """

    length: Length
    step: Size
    augmentation: Annotated[None, NO_AUGMENTATION] = None


@dataclass(frozen=True, kw_only=True)
class TinyShakespeare(Source):
    """Names a text of Shakespeare's plays, in blocks of `length` characters as token ids (length,),
    each character labelled with the one that follows it.

    augmentation: RandomPositions() to draw the blocks anywhere; None for one block after another.
    """

    length: Length
    augmentation: Annotated[RandomPositions | None, POSITIONS] = None


@dataclass(frozen=True, kw_only=True)
class Synthetic(Source):
    """Names examples that a formula makes for the model: pictures of its classes, token ids, or
    normal numbers, in its shapes. Only pictures are augmented.
    """


SOURCES = (CIFAR10, MNIST, IMDB, Text, TinyShakespeare, Synthetic)
