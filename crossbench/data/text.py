"""Cut a text into pieces of characters, as Keras' example lstm_text_generation does.

(keras-team/keras, examples/lstm_text_generation.py of Keras 2.) Its text, by Nietzsche, is the
official one here. Keras gives no digest. The digest below is of the 600,901 bytes in which three
copies on GitHub agree, once their editors' changes are undone (mirashe/simple-predictive-keyboard:
the first line cut off; rupeshbharambe24/DL-Practical and GaoYang-Thu/learn-keras-in-tensorflow:
UTF-8 encoded twice). The bytes hold 600,893 characters, 57 different ones in lower case, as Keras'
example prints.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..inputs.errors import DataError
from . import files
from .dataset import Dataset, Split
from .download import OfficialFiles
from .files import DamagedFile
from .sources import Text

FILE = "nietzsche.txt"
OFFICIAL_FILES = OfficialFiles(
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
TEST_PART = 10  # one tenth of the text, the last one, is to test on
MAX_BYTES = 20_000_000  # of a file: its pieces of 40 characters, one every 3, take 1 GB


def load_file(source: Text, path: Path) -> Dataset:
    """Load a UTF-8 text file with any line ends; raise DataError if it is unusable or too short."""
    return make_dataset(source, read(path), f"the text {path}", where=str(path))


def load_official(source: Text) -> Dataset:
    """Load Nietzsche's text from the cache, or download it; else raise DataUnavailable."""

    def from_directory(directory: Path) -> Dataset:
        path = directory / FILE
        return make_dataset(source, read(path), OFFICIAL_FILES.title, where=str(path))

    return OFFICIAL_FILES.load(from_directory)


def make_dataset(source: Text, text: str, name: str, where: str) -> Dataset:
    """Return the pieces of the text in lower case; those of the last tenth are to test on.

    A piece has `length` characters and starts every `step` of them; its label is the character
    that follows. No piece crosses from one split into the other. Token ids are given from 0 in
    the order of Unicode. inputs: (n, length) int32; labels: (n,) int32. where: names the text in
    an error. Raise DataError if a split has no piece.
    """
    token_ids, vocabulary = encode(text.lower())
    shortest = TEST_PART * (source.length + 1)
    if len(token_ids) < shortest:
        raise DataError(
            f"{where} is too short: {len(token_ids):,} characters, where pieces of {source.length}"
            f" need at least {shortest:,}"
        )
    end = len(token_ids) - len(token_ids) // TEST_PART
    train, test = (_pieces(source, part) for part in (token_ids[:end], token_ids[end:]))
    return Dataset(name, train, test, vocabulary=vocabulary)


def encode(text: str) -> tuple[np.ndarray, int]:
    """Return the token id of each character, and the number of different characters."""
    code_points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    alphabet, token_ids = np.unique(code_points, return_inverse=True)
    return token_ids.astype(np.int32), len(alphabet)


def _pieces(source: Text, token_ids: np.ndarray) -> Split:
    windows = sliding_window_view(token_ids, source.length + 1)[:: source.step]
    return Split(windows[:, :-1].copy(), windows[:, -1].copy())


def read(path: Path) -> str:
    """Return the text of the file, with each line end as a newline."""
    if files.is_directory(path):
        raise DataError(f"{path} is a directory: this model takes auto, synthetic or a text file")
    raw = files.read(path, MAX_BYTES, "this model takes auto, synthetic or a text file")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 (at byte {error.start:,}): save it in this encoding"
        raise DamagedFile(path, what) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
