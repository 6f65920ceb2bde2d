"""CIFAR-10, the binary version: https://www.cs.toronto.edu/~kriz/cifar.html

A record is a label byte and 3,072 bytes of red, green and blue planes, row by row.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import numpy as np

from ..errors import DataError
from .dataset import CLASSES, Dataset, Split
from .download import Official, file_name

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
TRAIN_FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST_FILES = ("test_batch.bin",)
RECORD = 1 + 3 * 32 * 32  # bytes
FILE_BYTES = 10_000 * RECORD  # of each official file


def load_directory(directory: Path) -> Dataset:
    """The six files of the binary version; DataError names the file that is damaged or missing."""
    if not directory.is_dir():
        raise DataError(
            f"{directory} is not a directory: --data takes auto, synthetic or a directory"
        )
    train, test = (_read(directory, names) for names in (TRAIN_FILES, TEST_FILES))
    return Dataset(f"CIFAR-10 files in {directory}", train, test)


def load_official() -> Dataset:
    """CIFAR-10 from the cache, else from the official archive; Unreachable where it cannot be."""
    found = load_directory(OFFICIAL.fetch())
    return Dataset("CIFAR-10", found.train, found.test)


def _read(directory: Path, names: tuple[str, ...]) -> Split:
    records = np.concatenate([_read_file(directory / name) for name in names])
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].copy())


def _read_file(path: Path) -> np.ndarray:
    try:
        raw = np.fromfile(path, np.uint8)
    except FileNotFoundError:
        raise DataError(f"{path} is missing: the directory must hold the binary version") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    if not raw.size or raw.size % RECORD:
        raise DataError(
            f"{path} is damaged: {raw.size:,} bytes are not a whole number of {RECORD}-byte records"
        )
    records = raw.reshape(-1, RECORD)
    wrong = np.flatnonzero(records[:, 0] >= CLASSES)
    if wrong.size:
        label = records[wrong[0], 0]
        raise DataError(f"{path} is damaged: record {wrong[0]} has the label {label}, over 9")
    return records


def unpack(archive: Path, directory: Path) -> None:
    """Copy the six known files, and nothing else, out of the archive; DataError where one lacks.

    Names and sizes are checked before a byte is written, so no path leads out of the directory.
    """
    directory.mkdir()
    wanted = {*TRAIN_FILES, *TEST_FILES}
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            if name in wanted and member.isfile() and member.size == FILE_BYTES:
                source = tar.extractfile(member)
                assert source is not None  # it is a regular file
                with source, open(directory / name, "wb") as target:
                    shutil.copyfileobj(source, target)
                wanted.remove(name)
    if wanted:
        raise DataError(f"{archive} lacks {', '.join(sorted(wanted))}")


OFFICIAL = Official(
    title="CIFAR-10",
    folder="cifar-10",
    sha256={URL: SHA256},
    megabytes=170,
    files=(*TRAIN_FILES, *TEST_FILES),
    unpack=lambda downloaded, directory: unpack(downloaded / file_name(URL), directory),
)
