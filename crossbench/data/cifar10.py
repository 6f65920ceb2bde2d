"""CIFAR-10, the binary version: https://www.cs.toronto.edu/~kriz/cifar.html

A record is a label byte and 3,072 bytes of red, green and blue planes, row by row.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np

from . import files
from .dataset import CLASSES, Dataset, Split
from .download import Official, file_name
from .files import DamagedFile

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
TRAIN_FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST_FILES = ("test_batch.bin",)
RECORD = 1 + 3 * 32 * 32  # bytes
FILE_BYTES = 10_000 * RECORD  # of each official file
MAX_FILE_BYTES = 10 * FILE_BYTES  # so that all pictures, or twice as many, may be in one file
ARCHIVE = files.ArchiveBounds(
    packed=2 * 170_000_000,  # twice the official archive, which hardly gets smaller by gzip
    unpacked=2 * 6 * FILE_BYTES,  # twice the six files
    member=FILE_BYTES,
    members=100,  # the six files and a few that describe them
)


def load_directory(directory: Path) -> Dataset:
    """The six files of the binary version; DataError names the file that is damaged or missing."""
    files.require_directory(directory)
    train, test = (_read(directory, names) for names in (TRAIN_FILES, TEST_FILES))
    return Dataset(f"CIFAR-10 files in {directory}", train, test)


def load_official() -> Dataset:
    """CIFAR-10 from the cache, else from the official archive; Unreachable where it cannot be."""
    return OFFICIAL.load(_load_unpacked)


def _load_unpacked(directory: Path) -> Dataset:
    """Load what unpack() left; DamagedFile where a file has not the official size any more."""
    for name in (*TRAIN_FILES, *TEST_FILES):
        size = (directory / name).stat().st_size
        if size != FILE_BYTES:
            what = f"is damaged: it has {size:,} bytes, where the official file has {FILE_BYTES:,}"
            raise DamagedFile(directory / name, what)
    found = load_directory(directory)
    return Dataset("CIFAR-10", found.train, found.test)


def _read(directory: Path, names: tuple[str, ...]) -> Split:
    records = np.concatenate([_read_file(directory / name) for name in names])
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].copy())


def _read_file(path: Path) -> np.ndarray:
    content = files.read(path, MAX_FILE_BYTES, "the directory must hold the binary version")
    raw = np.frombuffer(content, np.uint8)
    if not raw.size or raw.size % RECORD:
        raise DamagedFile(
            path,
            f"is damaged: {raw.size:,} bytes are not a whole number of {RECORD}-byte records",
        )
    records = raw.reshape(-1, RECORD)
    wrong = np.flatnonzero(records[:, 0] >= CLASSES)
    if wrong.size:
        label = records[wrong[0], 0]
        raise DamagedFile(path, f"is damaged: record {wrong[0]} has the label {label}, over 9")
    return records


def unpack(archive: Path, directory: Path) -> None:
    """Write the six known files of the archive, and nothing else, into the directory.

    DamagedFile where one is lacking or the archive is damaged; OSError where one cannot be written.
    Names and sizes are checked before a byte is written, so no path leads out of the directory.
    """
    directory.mkdir()
    lacking = {*TRAIN_FILES, *TEST_FILES}

    def wanted(member: tarfile.TarInfo) -> bool:
        return Path(member.name).name in lacking and member.size == FILE_BYTES

    for path, content in files.read_archive(archive, wanted, ARCHIVE):
        name = Path(path).name
        (directory / name).write_bytes(content)
        lacking.remove(name)
    if lacking:
        raise DamagedFile(archive, f"is damaged: it lacks {', '.join(sorted(lacking))}")


OFFICIAL = Official(
    title="CIFAR-10",
    folder="cifar-10",
    sha256={URL: SHA256},
    megabytes=170,
    files=(*TRAIN_FILES, *TEST_FILES),
    unpack=lambda downloaded, directory: unpack(downloaded / file_name(URL), directory),
)
