"""Read a text and cut it into pieces, as an example of Keras does, or into blocks, as nanoGPT does.

(keras-team/keras, examples/lstm_text_generation.py of Keras 2.) Its text, by Nietzsche, is the
official one for pieces. Keras gives no digest. The digest below is of the 600,901 bytes in which
three copies on GitHub agree, once their editors' changes are undone
(mirashe/simple-predictive-keyboard: the first line cut off; rupeshbharambe24/DL-Practical and
GaoYang-Thu/learn-keras-in-tensorflow: UTF-8 encoded twice). The bytes hold 600,893 characters, 57
different ones in lower case, as Keras' example prints.

(karpathy/nanoGPT, data/shakespeare_char/prepare.py.) Its text, of Shakespeare's plays, is the
official one for blocks: 1,115,394 characters, 65 different ones, from karpathy/char-rnn. The digest
is of the file in that repository.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..inputs.errors import DataError
from . import files
from .dataset import Dataset, Split
from .download import OfficialFiles
from .sources import Text, TinyShakespeare

CHAR_RNN = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
NIETZSCHE = OfficialFiles(
    title="Nietzsche's text",
    folder="nietzsche",
    sha256={
        "https://s3.amazonaws.com/text-datasets/nietzsche.txt": (
            "23cf69874ab69d3d256099ab530ea4be24d47d9675b673bcc67cbcd6298ec647"
        )
    },
    megabytes=0.6,
)
SHAKESPEARE = OfficialFiles(
    title="Shakespeare's text",
    folder="tinyshakespeare",
    sha256={
        f"{CHAR_RNN}tinyshakespeare/input.txt": (
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
        )
    },
    megabytes=1.1,
)
TAKES = "this model takes auto, synthetic or a text file"
TEST_PART = 10  # one tenth of the text, the last one, is to test on
MAX_BYTES = 20_000_000  # of a file: its pieces of 40 characters, one every 3, take 1 GB


def load_path(source: Text | TinyShakespeare, path: Path) -> Dataset:
    """Load a UTF-8 text file with any line ends; raise DataError if it is unusable or too short."""
    return make_dataset(source, _read(path), f"the text {path}", where=str(path))


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
        used = (len(token_ids) - 1) // source.length * source.length
        return Split(*(token_ids[i : i + used].reshape(-1, source.length) for i in (0, 1)))
    windows = sliding_window_view(token_ids, source.length + 1)[:: source.step]
    return Split(windows[:, :-1].copy(), windows[:, -1].copy())


def _read(path: Path) -> str:
    """Return the text of the file, with each line end as a newline."""
    if files.is_directory(path):
        raise DataError(f"{path} is a directory: {TAKES}")
    raw = files.read(path, MAX_BYTES, TAKES)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 (at byte {error.start:,}): save it in this encoding"
        raise DataError(f"{path} {what}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
