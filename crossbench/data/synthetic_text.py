"""Make a synthetic text by a formula, as long as Nietzsche's: for use if that is not available.

Invented words are drawn by Zipf's law, and many are followed by one of a few successors; they form
sentences, lines and paragraphs. The next character in a word, and often the next word, can be
learned.
"""

from __future__ import annotations

import numpy as np

from . import text
from .dataset import Dataset
from .sources import Text, TinyShakespeare
from .synthetic import draw_zipf

CHARACTERS = 600_000
WORDS = 1_500
SUCCESSORS, SUCCESSOR_PROBABILITY = 4, 0.6
LINE_LENGTH = 70  # characters
ONSETS = (*"bcdfghjklmnprstvwxyz", "qu", "th", "st", "pr")
VOWELS = (*"aaeeiioouu", "ea", *"äæéë")
CODAS = ("", *"nrstdl", "nd", "ng", "st")
PUNCTUATION = (*".,;:?!=_]'", '."', '!"', ".)", "...", "--")
OPENINGS = ("", "", "", "", *"\"(['")


def load(source: Text | TinyShakespeare, seed: int, characters: int = CHARACTERS) -> Dataset:
    """Return the text of that seed as a data set, cut as a real text is."""
    name, written = f"synthetic text (seed {seed})", write(seed, characters)
    return text.make_dataset(source, written, name, where=f"the {name}")


def write(seed: int, characters: int = CHARACTERS) -> str:
    """Return a text of that many characters; at the default length 57 are different."""
    random = np.random.default_rng([seed, 14])
    words = _invent_words(random)
    n = characters // 2  # enough, because every word has at least a letter and a blank
    word_ids = _draw_words(n, random)
    chances = random.random(n)
    marks = random.integers(0, len(PUNCTUATION) * len(OPENINGS) * 1_000, n)
    pieces: list[str] = []
    size = column = 0
    for word_id, chance, mark in zip(word_ids, chances.tolist(), marks.tolist(), strict=True):
        piece = _punctuate(words[word_id], chance, mark)
        column += len(piece)
        if column > LINE_LENGTH:
            piece, column = piece[:-1] + "\n", 0
        pieces.append(piece)
        size += len(piece)
        if size >= characters:
            break
    return "".join(pieces)[:characters]


def _punctuate(word: str, chance: float, mark: int) -> str:
    """Return the word and the characters up to the next word: mostly a blank.

    chance: from 0 to 1, decides which kind of punctuation; mark: decides which one of the kind.
    """
    if chance < 0.10:
        return f"{word}{PUNCTUATION[mark % len(PUNCTUATION)]} "
    if chance < 0.12:
        return f"{OPENINGS[mark % len(OPENINGS)]}{word.capitalize()} "
    if chance < 0.125:
        return f"{mark % 1_000} "
    if chance < 0.13:
        return f"{word}.\n\n"
    return f"{word} "


def _invent_words(random: np.random.Generator) -> list[str]:
    """Return WORDS words of one to three syllables, the shortest (most frequent) first."""
    syllables = np.sort(random.integers(1, 4, WORDS))
    return ["".join(_syllable(random) for _ in range(n)) for n in syllables]


def _syllable(random: np.random.Generator) -> str:
    parts = (ONSETS, VOWELS, CODAS)
    return "".join(part[random.integers(len(part))] for part in parts)


def _draw_words(n: int, random: np.random.Generator) -> list[int]:
    """Return n word ids, each a successor of the word before or drawn by Zipf's law."""
    independent = draw_zipf(WORDS, n, random).tolist()
    successors = draw_zipf(WORDS, (WORDS, SUCCESSORS), random).tolist()
    is_successor = (random.random(n) < SUCCESSOR_PROBABILITY).tolist()
    which = random.integers(0, SUCCESSORS, n).tolist()
    ids = [independent[0]]
    for i in range(1, n):
        ids.append(successors[ids[-1]][which[i]] if is_successor[i] else independent[i])
    return ids
