"""Read a text and cut it: into pieces as Keras' example lstm_text_generation does, or into the
blocks of shakespeare.py.

(keras-team/keras, examples/lstm_text_generation.py of Keras 2.) Its text, by Nietzsche, is the
official one for pieces. Keras gives no digest. The digest below is of the 600,901 bytes in which
three copies on GitHub agree, once their editors' changes are undone
(mirashe/simple-predictive-keyboard: the first line cut off; rupeshbharambe24/DL-Practical and
GaoYang-Thu/learn-keras-in-tensorflow: UTF-8 encoded twice). The bytes hold 600,893 characters, 57
different ones in lower case, as Keras' example prints.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..inputs.errors import DataError
from . import files, shakespeare
from .dataset import Dataset, Split
from .download import OfficialFiles
from .files import DamagedFile
from .sources import Text, TinyShakespeare

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


def load_file(source: Text | TinyShakespeare, path: Path) -> Dataset:
    """Load a UTF-8 text file with any line ends; raise DataError if it is unusable or too short."""
    return make_dataset(source, read(path), f"the text {path}", where=str(path))


def load_official(source: Text | TinyShakespeare) -> Dataset:
    """Load the published text from the cache, or download it; else raise DataUnavailable."""
    official = official_files(source)

    def from_directory(directory: Path) -> Dataset:
        path = directory / official.files[0]
        return make_dataset(source, read(path), official.title, where=str(path))

    return official.load(from_directory)


def official_files(source: Text | TinyShakespeare) -> OfficialFiles:
    """Return Nietzsche's text for pieces, Shakespeare's for blocks."""
    return OFFICIAL_FILES if isinstance(source, Text) else shakespeare.OFFICIAL_FILES


def make_dataset(source: Text | TinyShakespeare, text: str, name: str, where: str) -> Dataset:
    """Return the pieces of the text in lower case, or the blocks of the text as it is; those of
    the last tenth are to test on.

    A piece has `length` characters and starts every `step` of them; its label is the character
    that follows. Blocks follow one another; each character is labelled with the next one. None
    crosses from one split into the other. Token ids are given from 0 in the order of Unicode.
    inputs: (n, length) int32; labels: (n,) int32 of pieces, (n, length) int32 of blocks. where:
    names the text in an error. Raise DataError if a split has no piece or block.
    """
    is_cut_in_pieces = isinstance(source, Text)
    token_ids, vocabulary = _encode(text.lower() if is_cut_in_pieces else text)
    shortest = TEST_PART * (source.length + 1)
    if len(token_ids) < shortest:
        parts = "pieces" if is_cut_in_pieces else "blocks"
        raise DataError(
            f"{where} is too short: {len(token_ids):,} characters, where {parts} of {source.length}"
            f" need at least {shortest:,}"
        )
    end = len(token_ids) - len(token_ids) // TEST_PART
    train, test = (_cut(source, part) for part in (token_ids[:end], token_ids[end:]))
    return Dataset(name, train, test, vocabulary=vocabulary)


def _encode(text: str) -> tuple[np.ndarray, int]:
    """Return the token id of each character, and the number of different characters."""
    code_points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    alphabet, token_ids = np.unique(code_points, return_inverse=True)
    return token_ids.astype(np.int32), len(alphabet)


def _cut(source: Text | TinyShakespeare, token_ids: np.ndarray) -> Split:
    if isinstance(source, TinyShakespeare):
        return shakespeare.make_blocks(token_ids, source.length)
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
