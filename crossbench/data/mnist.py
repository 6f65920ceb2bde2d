"""MNIST: digits written by hand, in the IDX format of http://yann.lecun.com/exdb/mnist/

A file is a magic number (two bytes 0, the type of a value, the number of dimensions), the size of
each dimension as a big-endian 32-bit integer, and the values; here the type is 8, a byte. The four
files are published compressed by gzip.

The SHA-256 digests are those of torchvision's own list (pytorch/vision,
torchvision/prototype/datasets/_builtin/mnist.py), and the mirror is the one that torchvision
downloads from (torchvision/datasets/mnist.py).
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from ..errors import DataError
from .dataset import CLASSES, Dataset, Split
from .download import Official

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SHA256 = {
    "train-images-idx3-ubyte.gz": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "train-labels-idx1-ubyte.gz": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
SIDE = 28  # pixels
UNSIGNED_BYTE = 8

OFFICIAL = Official(
    title="MNIST",
    folder="mnist",
    sha256={MIRROR + name: digest for name, digest in SHA256.items()},
    megabytes=12,
    files=tuple(SHA256),
)


def load_directory(directory: Path) -> Dataset:
    """The four IDX files, plain or .gz; DataError names the file that is damaged or missing.

    Pictures are (n, 1, 28, 28) uint8, labels (n,) uint8.
    """
    if not directory.is_dir():
        raise DataError(
            f"{directory} is not a directory: --data takes auto, synthetic or a directory"
        )
    train, test = (_read(directory, prefix) for prefix in ("train", "t10k"))
    return Dataset(f"MNIST files in {directory}", train, test)


def load_official() -> Dataset:
    """MNIST from the cache, else from the mirror; Unreachable where it cannot be."""
    found = load_directory(OFFICIAL.fetch())
    return Dataset("MNIST", found.train, found.test)


def _read(directory: Path, prefix: str) -> Split:
    images_path = _find(directory, f"{prefix}-images-idx3-ubyte")
    images = read_idx(images_path, (SIDE, SIDE))
    labels_path = _find(directory, f"{prefix}-labels-idx1-ubyte")
    labels = read_idx(labels_path, ())
    if len(labels) != len(images):
        raise DataError(
            f"{labels_path} has {len(labels):,} labels, but {images_path.name} {len(images):,}"
            " pictures: they must belong together"
        )
    wrong = np.flatnonzero(labels >= CLASSES)
    if wrong.size:
        raise DataError(f"{labels_path} is damaged: label {wrong[0]} is {labels[wrong[0]]}, over 9")
    return Split(images[:, None], labels)


def _find(directory: Path, name: str) -> Path:
    """The plain file where it is there, else the compressed one."""
    for path in (directory / name, directory / f"{name}.gz"):
        if path.exists():
            return path
    raise DataError(
        f"{directory / name} is missing: the directory must hold MNIST's four files, plain or .gz"
    )


def read_idx(path: Path, item: tuple[int, ...]) -> np.ndarray:
    """(n, *item) uint8, from a file of at least one item; DataError where it is another one."""
    raw = _bytes(path)
    dimensions = 1 + len(item)
    magic, expected = raw[:4], bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if magic != expected:
        raise DataError(
            f"{path} is damaged or no IDX file: it begins with {magic.hex() or 'nothing'}, "
            f"not {expected.hex()}"
        )
    header = 4 * (1 + dimensions)
    if len(raw) < header:
        raise DataError(f"{path} is damaged: it ends within its header of {header} bytes")
    n, *sizes = np.frombuffer(raw[4:header], ">u4").tolist()
    if tuple(sizes) != item:
        raise DataError(
            f"{path} holds items of {_times(sizes)}, where MNIST has {_times(item)} pixels"
        )
    values = np.frombuffer(raw, np.uint8, offset=header)
    wanted = int(n * np.prod(item, dtype=int))
    if not n or values.size != wanted:
        raise DataError(
            f"{path} is damaged: {values.size:,} bytes follow its header, which says {wanted:,}"
            f" ({n:,} items)"
        )
    return values.reshape(n, *item)


def _bytes(path: Path) -> bytes:
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read()
        return path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged: {str(error).rstrip('.')}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _times(sizes: tuple[int, ...] | list[int]) -> str:
    return " × ".join(map(str, sizes))
