"""Read CIFAR-10 (https://www.cs.toronto.edu/~kriz/cifar.html) in its binary and its Python version.

A binary record is a label byte and 3,072 bytes of red, green and blue planes, row by row. A file of
the Python version is a pickled dictionary: `data` (n, 3072) uint8 in the same order, and `labels`.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..inputs.errors import DataError
from . import files
from .dataset import CLASSES, Dataset, Split
from .download import OfficialFiles, file_name
from .pickles import unpickle

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
TRAIN_FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST_FILES = ("test_batch.bin",)
PIXELS = 3 * 32 * 32
RECORD_BYTES = 1 + PIXELS
FILE_BYTES = 10_000 * RECORD_BYTES  # of each official file
MAX_FILE_BYTES = 10 * FILE_BYTES  # one file may hold all 50,000 training pictures, or twice that
ARCHIVE = files.ArchiveBounds(
    packed=2 * 170_000_000,  # twice the official archive, which gzip hardly compresses
    unpacked=2 * 6 * FILE_BYTES,  # twice the six files
    member=2 * FILE_BYTES,  # in the Python version a file has names of its pictures too
    members=100,  # the six files, and some room for files that describe them
)


@dataclass(frozen=True)
class Version:
    """Say how a version of the files is called, and how one of them is read.

    parse: returns the examples in a file's bytes; raises ValueError if they are damaged.
    """

    title: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    parse: Callable[[bytes], Split]

    @property
    def files(self) -> tuple[str, ...]:
        return self.train + self.test


def load_path(path: Path) -> Dataset:
    """Load CIFAR-10 from what a user has: a folder of one of its versions, a folder above it, or
    the archive as it was downloaded. Raise DataError, naming it, if a file is damaged or missing.
    """
    folder, name = FORMS.find(path)
    for version in (BINARY, PYTHON):
        if name in version.files:
            return _load_folder(folder, version)
    return _load_archive(folder)


def _load_folder(folder: Path, version: Version) -> Dataset:
    def parse(name: str) -> Split:
        path = folder / name
        raw = files.read(path, MAX_FILE_BYTES, f"the folder must hold the {version.title}")
        try:
            return version.parse(raw)
        except ValueError as error:
            raise DataError(f"{path} is damaged: {error}") from None

    title = FORMS.title if version is BINARY else f"{FORMS.title}'s Python"
    return _join(f"{title} files in {folder}", version, parse)


def _load_archive(path: Path) -> Dataset:
    found = dict(_read_archive(path, BINARY.files + PYTHON.files))
    if not found:
        raise DataError(f"{path} holds no {FORMS.title}: {FORMS.takes}")
    version = BINARY if found.keys() & {*BINARY.files} else PYTHON
    if missing := [name for name in version.files if name not in found]:
        raise DataError(f"{path} is damaged: it lacks {', '.join(missing)}")

    def parse(name: str) -> Split:
        try:
            return version.parse(found[name])
        except ValueError as error:
            raise DataError(f"{path} is damaged: {name} in it: {error}") from None

    return _join(f"{FORMS.title} in {path}", version, parse)


def _read_archive(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of the archive's files of these names, in any folder."""

    def wanted(member: tarfile.TarInfo) -> bool:
        return Path(member.name).name in names

    for member, content in files.read_archive(path, wanted, ARCHIVE):
        yield Path(member).name, content


def _join(name: str, version: Version, parse: Callable[[str], Split]) -> Dataset:
    """Return the data set of the files of a version, by what reads one of them."""
    train, test = ([parse(file) for file in of_split] for of_split in (version.train, version.test))
    return Dataset(name, _concatenated(train), _concatenated(test))


def _concatenated(splits: list[Split]) -> Split:
    inputs, labels = zip(*((split.inputs, split.labels) for split in splits), strict=True)
    return Split(np.concatenate(inputs), np.concatenate(labels))


def _parse_records(content: bytes) -> Split:
    raw = np.frombuffer(content, np.uint8)
    if not raw.size or raw.size % RECORD_BYTES:
        raise ValueError(
            f"{raw.size:,} bytes are not a whole number of {RECORD_BYTES}-byte records"
        )
    records = raw.reshape(-1, RECORD_BYTES)
    return _checked(records[:, 1:], records[:, 0])


def _parse_pickle(content: bytes) -> Split:
    found = unpickle(content)
    if not isinstance(found, dict):
        raise ValueError("it holds no dictionary")
    values: list[Any] = [found.get(key.encode(), found.get(key)) for key in ("data", "labels")]
    pixels, labels = values
    is_array = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.size
    if not is_array or pixels.shape[1:] != (PIXELS,):
        raise ValueError(f"its data is no array (n, {PIXELS:,}) of bytes")
    if not isinstance(labels, list) or len(labels) != len(pixels):
        raise ValueError(f"its labels are no list of {len(pixels):,}")
    if not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise ValueError(f"its labels are no numbers from 0 to {CLASSES - 1}")
    return _checked(pixels, np.array(labels, np.uint8))


def _checked(pixels: np.ndarray, labels: np.ndarray) -> Split:
    """Return the pictures and labels; raise ValueError for a label that is none."""
    wrong = np.flatnonzero(labels >= CLASSES)
    if wrong.size:
        raise ValueError(f"record {wrong[0]} has the label {labels[wrong[0]]}, over {CLASSES - 1}")
    return Split(pixels.reshape(-1, 3, 32, 32), labels.copy())


BINARY = Version("binary version", TRAIN_FILES, TEST_FILES, _parse_records)
PYTHON = Version(
    "Python version",
    tuple(name.removesuffix(".bin") for name in TRAIN_FILES),
    tuple(name.removesuffix(".bin") for name in TEST_FILES),
    _parse_pickle,
)


FORMS = files.Forms(
    title="CIFAR-10",
    takes=(
        "--data takes auto, synthetic, or CIFAR-10's binary or Python version: its folder, a "
        "folder above it, or the .tar.gz"
    ),
    folders=(BINARY.files, PYTHON.files),
    packed=(file_name(URL), "cifar-10-python.tar.gz"),
    magic=files.GZIP,
)


def unpack(directory: Path) -> None:
    """Write the six binary files of the official archive beside it, and nothing else."""
    for name, content in _read_archive(directory / file_name(URL), BINARY.files):
        (directory / name).write_bytes(content)


OFFICIAL_FILES = OfficialFiles(
    title="CIFAR-10",
    folder="cifar-10",
    sha256={URL: SHA256},
    megabytes=170,
    unpack=unpack,
    unpacked=dict.fromkeys(BINARY.files, FILE_BYTES),
)
