"""A text made by a formula, of the size of Nietzsche's: for where that cannot be had.

Invented words, frequent and rare by Zipf's law, of which many a one is followed by one of its few
companions, in sentences, lines and paragraphs. What comes next in a word, and often after it, can
be learned.
"""

from __future__ import annotations

import numpy as np

from . import text
from .dataset import Dataset
from .sources import Text

CHARACTERS = 600_000
WORDS = 1_500
COMPANIONS, FOLLOWED = 4, 0.6
LINE = 70  # characters
BEGINS = (*"bcdfghjklmnprstvwxyz", "qu", "th", "st", "pr")
MIDDLES = (*"aaeeiioouu", "ea", *"äæéë")
ENDS = ("", *"nrstdl", "nd", "ng", "st")
STOPS = (*".,;:?!=_]'", '."', '!"', ".)", "...", "--")
OPENINGS = ("", "", "", "", *"\"(['")


def load(source: Text, seed: int, characters: int = CHARACTERS) -> Dataset:
    """The stand-in of that seed, cut into pieces as a real text."""
    name = f"synthetic text (seed {seed})"
    return text.cut(source, write(seed, characters), name, where=f"the {name}")


def write(seed: int, characters: int = CHARACTERS) -> str:
    """A text of that many characters; 57 different ones where it is as long as Nietzsche's."""
    random = np.random.default_rng([seed, 14])
    words = _words(random)
    n = characters // 2  # more than enough: no word is shorter than a letter and a blank
    numbers = _chain(n, random)
    shape = random.random(n)
    marks = random.integers(0, len(STOPS) * len(OPENINGS) * 1_000, n)
    pieces: list[str] = []
    size = column = 0
    for number, chance, mark in zip(numbers, shape.tolist(), marks.tolist(), strict=True):
        piece = _piece(words[number], chance, mark)
        column += len(piece)
        if column > LINE:
            piece, column = piece[:-1] + "\n", 0
        pieces.append(piece)
        size += len(piece)
        if size >= characters:
            break
    return "".join(pieces)[:characters]


def _piece(word: str, chance: float, mark: int) -> str:
    """The word with what follows it, up to the next one: mostly a blank."""
    if chance < 0.10:
        return f"{word}{STOPS[mark % len(STOPS)]} "
    if chance < 0.12:
        return f"{OPENINGS[mark % len(OPENINGS)]}{word.capitalize()} "
    if chance < 0.125:
        return f"{mark % 1_000} "
    if chance < 0.13:
        return f"{word}.\n\n"
    return f"{word} "


def _words(random: np.random.Generator) -> list[str]:
    """Invented ones of one to three syllables, the short ones the most frequent."""
    syllables = np.sort(random.integers(1, 4, WORDS))
    return ["".join(_syllable(random) for _ in range(n)) for n in syllables]


def _syllable(random: np.random.Generator) -> str:
    parts = (BEGINS, MIDDLES, ENDS)
    return "".join(part[random.integers(len(part))] for part in parts)


def _chain(n: int, random: np.random.Generator) -> list[int]:
    """Numbers of words: companions of the one before, or anew by Zipf's law."""
    share = np.cumsum(1 / np.arange(1, WORDS + 1))
    fresh = np.searchsorted(share, random.random(n) * share[-1]).tolist()
    companions = np.searchsorted(share, random.random((WORDS, COMPANIONS)) * share[-1]).tolist()
    followed = (random.random(n) < FOLLOWED).tolist()
    which = random.integers(0, COMPANIONS, n).tolist()
    chain = [fresh[0]]
    for i in range(1, n):
        chain.append(companions[chain[-1]][which[i]] if followed[i] else fresh[i])
    return chain
