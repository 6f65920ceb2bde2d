"""Read MNIST, handwritten digits, in the IDX format and as Keras' mnist.npz.

Keras' file has the same arrays as x_train, y_train, x_test and y_test.

An IDX file (http://yann.lecun.com/exdb/mnist/) is a magic number (two bytes 0, the type of a value,
the number of dimensions), the size of each dimension as a big-endian 32-bit integer, and the
values; MNIST's type is 8, an unsigned byte. The four files are published compressed by gzip.

The SHA-256 digests are those of torchvision's own list (pytorch/vision,
torchvision/prototype/datasets/_builtin/mnist.py), and the mirror is the one that torchvision
downloads from (torchvision/datasets/mnist.py).
"""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ..inputs.errors import DataError
from ..inputs.printable import printable
from . import files
from .dataset import CLASSES, Dataset, Split
from .download import OfficialFiles

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
MAX_ITEMS = 600_000  # pictures or labels in a file: ten times the official 60,000
MAX_FILE_BYTES = 16 + MAX_ITEMS * SIDE * SIDE  # the header and MAX_ITEMS pictures
IDX_FILES = (*SHA256, *(name.removesuffix(".gz") for name in SHA256))
FOUR_FILES = "the directory must hold MNIST's four files, plain or .gz"
NPZ = "mnist.npz"
FORMS = files.Forms(
    title="MNIST",
    takes=(
        "--data takes auto, synthetic, MNIST's four files, plain or .gz, by their folder or one "
        f"above it, or Keras' {NPZ}"
    ),
    folders=(IDX_FILES,),
    packed=(NPZ,),
    magic=files.ZIP,
)
OFFICIAL_FILES = OfficialFiles(
    title="MNIST",
    folder="mnist",
    sha256={MIRROR + name: digest for name, digest in SHA256.items()},
    megabytes=12,
)


def load_path(path: Path) -> Dataset:
    """Load MNIST from what a user has: the folder of the four files, a folder above it, or Keras'
    file: pictures (n, 1, 28, 28) uint8, labels (n,) uint8. Raise DataError, naming it, if a file is
    damaged or missing.
    """
    found, is_folder = FORMS.find(path)
    if not is_folder:
        return _load_npz(found)
    train, test = (_read(found, prefix) for prefix in ("train", "t10k"))
    return Dataset(f"MNIST files in {found}", train, test)


def _read(directory: Path, prefix: str) -> Split:
    images_path = _find(directory, f"{prefix}-images-idx3-ubyte")
    images = read_idx(images_path, (SIDE, SIDE))
    labels_path = _find(directory, f"{prefix}-labels-idx1-ubyte")
    return _split(images, images_path.name, read_idx(labels_path, ()), labels_path)


def _split(images: np.ndarray, of: str, labels: np.ndarray, path: Path) -> Split:
    """Return the examples; raise DataError, naming the labels' file, if they do not fit.

    of: name of what holds the pictures.
    """
    if len(labels) != len(images):
        raise DataError(
            f"{path} has {len(labels):,} labels, but {of} {len(images):,} pictures: they"
            " must belong together",
        )
    wrong = np.flatnonzero(labels >= CLASSES)
    if wrong.size:
        raise DataError(f"{path} is damaged: label {wrong[0]} is {labels[wrong[0]]}, over 9")
    return Split(images[:, None], labels)


def _load_npz(path: Path) -> Dataset:
    try:
        with (
            files.open_regular_file(path, MAX_FILE_BYTES, FORMS.takes) as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            size = sum(member.file_size for member in arrays.zip.infolist())
            if size > MAX_FILE_BYTES:
                raise DataError(f"{path} is too large: it holds {size:,} bytes")
            train, test = (_read_npz(arrays, split, path) for split in ("train", "test"))
    except (ValueError, KeyError, MemoryError, zipfile.BadZipFile, NotImplementedError) as error:
        raise DataError(f"{path} is damaged: {printable(str(error))}") from None
    return Dataset(f"MNIST in {path}", train, test)


def _read_npz(arrays: Any, split: str, path: Path) -> Split:
    """Return a split of Keras' file; raise KeyError without it, ValueError for other arrays."""
    images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
    for name, array, shape in (("x", images, (SIDE, SIDE)), ("y", labels, ())):
        if array.dtype != np.uint8 or not array.ndim or array.shape[1:] != shape or not len(array):
            raise ValueError(
                f"{name}_{split} is {array.shape} {array.dtype}, where MNIST has bytes"
                f" (n{''.join(f', {side}' for side in shape)})"
            )
    return _split(images, f"x_{split}", labels, path)


def _find(directory: Path, name: str) -> Path:
    """Return the path of the plain file if it exists, else of the compressed one."""
    for path in (directory / name, directory / f"{name}.gz"):
        if files.exists(path):
            return path
    raise DataError(f"{directory / name} is missing: {FOUR_FILES}")


def read_idx(path: Path, item_shape: tuple[int, ...]) -> np.ndarray:
    """Return the values of an IDX file: (n, *item_shape) uint8, n at least 1.

    Raise DataError if the file holds anything else. At most one byte more is read than the header
    says, which is enough to detect a file that is too long.
    """
    with files.open_regular_file(
        path, MAX_FILE_BYTES, FOUR_FILES, packed=path.suffix == ".gz"
    ) as file:
        n = _read_header(path, file, item_shape)
        expected = n * math.prod(item_shape)
        raw = files.read_up_to(file, expected + 1)
    if not n or len(raw) != expected:
        at_least = "at least " if len(raw) > expected else ""
        raise DataError(
            f"{path} is damaged: {at_least}{len(raw):,} bytes follow its header, which says "
            f"{expected:,} ({n:,} items)"
        )
    return np.frombuffer(raw, np.uint8).reshape(n, *item_shape)


def _read_header(path: Path, file: io.BufferedIOBase, item_shape: tuple[int, ...]) -> int:
    """Return the number of items that the header gives; raise DataError if it is not MNIST's."""
    dimensions = 1 + len(item_shape)
    expected = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    size = 4 * (1 + dimensions)
    header = files.read_up_to(file, size)
    if header[:4] != expected:
        begin = header[:4].hex() or "nothing"
        what = f"is damaged or not an IDX file: it begins with {begin}, not {expected.hex()}"
        raise DataError(f"{path} {what}")
    if len(header) < size:
        raise DataError(f"{path} is damaged: it ends within its header of {size} bytes")
    n, *sizes = np.frombuffer(header[4:], ">u4").tolist()
    if tuple(sizes) != item_shape:
        what = f"holds items of {_joined(sizes)}, where MNIST has {_joined(item_shape)} pixels"
        raise DataError(f"{path} {what}")
    if n > MAX_ITEMS:
        what = f"is too large: its header says {n:,} items, where at most {MAX_ITEMS:,} are read"
        raise DataError(f"{path} {what}")
    return n


def _joined(sizes: tuple[int, ...] | list[int]) -> str:
    return " × ".join(map(str, sizes))
