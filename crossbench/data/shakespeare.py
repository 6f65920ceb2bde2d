"""Cut a text into blocks of characters, each labelled with the next one, as nanoGPT does.

(karpathy/nanoGPT, data/shakespeare_char/prepare.py.) Its text, of Shakespeare's plays, is the
official one here: 1,115,394 characters, 65 different ones, from karpathy/char-rnn. The digest is of
the file in that repository.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..inputs.errors import DataError
from .dataset import Dataset, Split
from .download import OfficialFiles
from .sources import TinyShakespeare
from .text import TEST_PART, encode, read

FILE = "input.txt"
OFFICIAL_FILES = OfficialFiles(
    title="Shakespeare's text",
    folder="tinyshakespeare",
    sha256={
        f"https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/{FILE}": (
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
        )
    },
    megabytes=1.1,
    files=(FILE,),
)


def load_file(source: TinyShakespeare, path: Path) -> Dataset:
    """Load a UTF-8 text file with any line ends; raise DataError if it is unusable or too short."""
    return make_dataset(source, read(path), f"the text {path}", where=str(path))


def load_official(source: TinyShakespeare) -> Dataset:
    """Load Shakespeare's text from the cache, or download it; else raise DataUnavailable."""

    def from_directory(directory: Path) -> Dataset:
        path = directory / FILE
        return make_dataset(source, read(path), OFFICIAL_FILES.title, where=str(path))

    return OFFICIAL_FILES.load(from_directory)


def make_dataset(source: TinyShakespeare, text: str, name: str, where: str) -> Dataset:
    """Return the blocks of the text, one after another; those of the last tenth are to test on.

    Token ids are given from 0 in the order of Unicode. inputs, labels: (n, length) int32. where:
    names the text in an error. Raise DataError if a split has no block.
    """
    token_ids, vocabulary = encode(text)
    shortest = TEST_PART * (source.length + 1)
    if len(token_ids) < shortest:
        raise DataError(
            f"{where} is too short: {len(token_ids):,} characters, where blocks of {source.length}"
            f" need at least {shortest:,}"
        )
    end = len(token_ids) - len(token_ids) // TEST_PART
    train, test = (make_blocks(part, source.length) for part in (token_ids[:end], token_ids[end:]))
    return Dataset(name, train, test, vocabulary=vocabulary)


def make_blocks(token_ids: np.ndarray, length: int) -> Split:
    """Return consecutive blocks (n, length), and as their labels the ids one place later."""
    used = (len(token_ids) - 1) // length * length
    return Split(*(token_ids[start : start + used].reshape(-1, length) for start in (0, 1)))


def draw_blocks(split: Split, n: int, random: np.random.Generator) -> Split:
    """Return n blocks that begin at random positions of the text that a split was made from."""
    length, tokens = split.inputs.shape[1], split.inputs.reshape(-1)
    starts = random.integers(0, len(tokens) - length, n)
    places = starts[:, None] + np.arange(length)
    return Split(tokens[places], tokens[places + 1])
