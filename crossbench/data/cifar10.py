"""Read CIFAR-10's binary version (https://www.cs.toronto.edu/~kriz/cifar.html).

A record is a label byte and 3,072 bytes of red, green and blue planes, row by row.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np

from . import files
from .dataset import CLASSES, Dataset, Split
from .download import OfficialFiles, file_name
from .files import DamagedFile

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
TRAIN_FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST_FILES = ("test_batch.bin",)
RECORD_BYTES = 1 + 3 * 32 * 32
FILE_BYTES = 10_000 * RECORD_BYTES  # of each official file
MAX_FILE_BYTES = 10 * FILE_BYTES  # one file may hold all 50,000 training pictures, or twice that
ARCHIVE = files.ArchiveBounds(
    packed=2 * 170_000_000,  # twice the official archive, which gzip hardly compresses
    unpacked=2 * 6 * FILE_BYTES,  # twice the six files
    member=FILE_BYTES,
    members=100,  # the six files, and some room for files that describe them
)


def load_directory(directory: Path) -> Dataset:
    """Load the six binary files; raise DataError, naming the file, if one is damaged or missing."""
    files.require_directory(directory)
    train, test = (_read(directory, names) for names in (TRAIN_FILES, TEST_FILES))
    return Dataset(f"CIFAR-10 files in {directory}", train, test)


def load_official() -> Dataset:
    """Load CIFAR-10 from the cache, or download it; else raise DataUnavailable."""
    return OFFICIAL_FILES.load(_load_unpacked)


def _load_unpacked(directory: Path) -> Dataset:
    """Load the files that unpack() wrote; raise DamagedFile if one lacks the official size."""
    for name in (*TRAIN_FILES, *TEST_FILES):
        size = (directory / name).stat().st_size
        if size != FILE_BYTES:
            what = f"is damaged: it has {size:,} bytes, where the official file has {FILE_BYTES:,}"
            raise DamagedFile(directory / name, what)
    dataset = load_directory(directory)
    return Dataset("CIFAR-10", dataset.train, dataset.test)


def _read(directory: Path, names: tuple[str, ...]) -> Split:
    records = np.concatenate([_read_file(directory / name) for name in names])
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].copy())


def _read_file(path: Path) -> np.ndarray:
    content = files.read(path, MAX_FILE_BYTES, "the directory must hold the binary version")
    raw = np.frombuffer(content, np.uint8)
    if not raw.size or raw.size % RECORD_BYTES:
        raise DamagedFile(
            path,
            f"is damaged: {raw.size:,} bytes are not a whole number of {RECORD_BYTES}-byte records",
        )
    records = raw.reshape(-1, RECORD_BYTES)
    wrong = np.flatnonzero(records[:, 0] >= CLASSES)
    if wrong.size:
        label = records[wrong[0], 0]
        raise DamagedFile(path, f"is damaged: record {wrong[0]} has the label {label}, over 9")
    return records


def unpack(archive: Path, directory: Path) -> None:
    """Write the six binary files of the archive, and nothing else, into a new directory.

    Raise DamagedFile if one is missing or the archive is damaged, OSError if one cannot be
    written. Only the last part of a member's path is used, and names and sizes are checked before
    a byte is written: nothing is written outside of the directory.
    """
    directory.mkdir()
    missing = {*TRAIN_FILES, *TEST_FILES}

    def wanted(member: tarfile.TarInfo) -> bool:
        return Path(member.name).name in missing and member.size == FILE_BYTES

    for path, content in files.read_archive(archive, wanted, ARCHIVE):
        name = Path(path).name
        (directory / name).write_bytes(content)
        missing.remove(name)
    if missing:
        raise DamagedFile(archive, f"is damaged: it lacks {', '.join(sorted(missing))}")


OFFICIAL_FILES = OfficialFiles(
    title="CIFAR-10",
    folder="cifar-10",
    sha256={URL: SHA256},
    megabytes=170,
    files=(*TRAIN_FILES, *TEST_FILES),
    unpack=lambda downloaded, directory: unpack(downloaded / file_name(URL), directory),
)
