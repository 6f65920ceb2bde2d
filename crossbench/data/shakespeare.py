"""Make blocks of characters, each labelled with the next one, as nanoGPT does.

(karpathy/nanoGPT, data/shakespeare_char/prepare.py.) Its text, of Shakespeare's plays, is the
official one here: 1,115,394 characters, 65 different ones, from karpathy/char-rnn. The digest is of
the file in that repository.
"""

from __future__ import annotations

import numpy as np

from .dataset import Split
from .download import OfficialFiles

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


def make_blocks(token_ids: np.ndarray, length: int) -> Split:
    """Return consecutive blocks (n, length), and as their labels the ids one place later."""
    used = (len(token_ids) - 1) // length * length
    return Split(*(token_ids[start : start + used].reshape(-1, length) for start in (0, 1)))


def draw_blocks(split: Split, n: int, random: np.random.Generator) -> Split:
    """Return n blocks that begin at random positions of the text that a split was made from."""
    tokens = split.inputs.reshape(-1)
    places = draw_starts(split, n, random)[:, None] + np.arange(split.inputs.shape[1])
    return Split(tokens[places], tokens[places + 1])


def draw_starts(split: Split, n: int, random: np.random.Generator) -> np.ndarray:
    """Return the positions, counted from 0, at which n blocks begin."""
    return random.integers(0, split.inputs.size - split.inputs.shape[1], n)
