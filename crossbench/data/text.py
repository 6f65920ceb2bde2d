"""A text, cut into pieces of characters: as in Keras' example lstm_text_generation.

(keras-team/keras, examples/lstm_text_generation.py of Keras 2.) Its text, by Nietzsche, is the
official one here. Keras gives no digest. The one below is of the 600,901 bytes that three copies
on GitHub agree in, once what their editors did is undone (mirashe/simple-predictive-keyboard: the
first line cut off; rupeshbharambe24/DL-Practical and GaoYang-Thu/learn-keras-in-tensorflow: UTF-8
encoded twice); they hold 600,893 characters, 57 different ones in lower case, as Keras' example
prints.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..errors import DataError
from . import files
from .dataset import Dataset, Split
from .download import Official
from .files import DamagedFile
from .sources import Text

FILE = "nietzsche.txt"
OFFICIAL = Official(
    title="Nietzsche's text",
    folder="nietzsche",
    sha256={
        f"https://s3.amazonaws.com/text-datasets/{FILE}": (
            "23cf69874ab69d3d256099ab530ea4be24d47d9675b673bcc67cbcd6298ec647"
        )
    },
    megabytes=0.6,
    files=(FILE,),
)
TEST_PART = 10  # the last tenth
MAX_BYTES = 20_000_000  # of a file: its pieces of 40 characters, every 3, then take 1 GB of memory


def load_file(source: Text, path: Path) -> Dataset:
    """A UTF-8 text file of any line ends; DataError where it cannot be read or is too short."""
    return cut(source, _read(path), f"the text {path}", where=str(path))


def load_official(source: Text) -> Dataset:
    """Nietzsche's text from the cache, else downloaded; Unreachable where it cannot be."""

    def read(directory: Path) -> Dataset:
        path = directory / FILE
        return cut(source, _read(path), OFFICIAL.title, where=str(path))

    return OFFICIAL.load(read)


def cut(source: Text, text: str, name: str, where: str) -> Dataset:
    """The pieces of a text in lower case, of which the last tenth is to test on.

    A piece is `length` characters, every `step` of them, and its label the character after it;
    none reaches from one split into the other. Characters are numbered from 0 in the order of
    Unicode. inputs: (n, length) int32; labels: (n,) int32. DataError where a split has no piece.
    """
    numbers, vocabulary = _numbered(text.lower())
    shortest = TEST_PART * (source.length + 1)
    if len(numbers) < shortest:
        raise DataError(
            f"{where} is too short: {len(numbers):,} characters, where pieces of {source.length}"
            f" need at least {shortest:,}"
        )
    end = len(numbers) - len(numbers) // TEST_PART
    train, test = (_pieces(source, part) for part in (numbers[:end], numbers[end:]))
    return Dataset(name, train, test, vocabulary=vocabulary)


def _numbered(text: str) -> tuple[np.ndarray, int]:
    """Each character's number, and how many there are."""
    points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    alphabet, numbers = np.unique(points, return_inverse=True)
    return numbers.astype(np.int32), len(alphabet)


def _pieces(source: Text, numbers: np.ndarray) -> Split:
    windows = sliding_window_view(numbers, source.length + 1)[:: source.step]
    return Split(windows[:, :-1].copy(), windows[:, -1].copy())


def _read(path: Path) -> str:
    """Return the text of the file, whatever ends its lines."""
    if files.is_directory(path):
        raise DataError(f"{path} is a directory: this model takes auto, synthetic or a text file")
    raw = files.read(path, MAX_BYTES, "this model takes auto, synthetic or a text file")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 (at byte {error.start:,}): save it in this encoding"
        raise DamagedFile(path, what) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
