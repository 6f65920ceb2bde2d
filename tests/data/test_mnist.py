"""Test the loading of MNIST's IDX files, and of Keras' file of the same arrays."""

import gzip
import re
import zipfile

import numpy as np
import pytest
from caches import compress, error_line
from samples import write_mnist

from crossbench import data
from crossbench.data import mnist, synthetic
from crossbench.data.sources import MNIST

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.fixture
def directory(tmp_path):
    return write_mnist(tmp_path / "mnist", 3)


def load(directory):
    return data.load(MNIST(), str(directory), seed=0)


def test_the_idx_format_is_read(directory):
    dataset = load(directory)
    assert dataset.name == f"MNIST files in {directory}"
    assert dataset.vocabulary is None
    for split, seed in ((dataset.train, 0), (dataset.test, 1)):
        written = synthetic.make_split(synthetic.MNIST, 3, np.random.default_rng(seed))
        np.testing.assert_array_equal(split.inputs, written.inputs)
        np.testing.assert_array_equal(split.labels, written.labels)
        assert split.inputs.dtype == split.labels.dtype == np.uint8


def header(magic, *sizes):
    return bytes.fromhex(magic) + b"".join(size.to_bytes(4, "big") for size in sizes)


PICTURES = bytes(3 * 28 * 28)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (IMAGES, b"", "begins with nothing, not 00000803"),
        (IMAGES, header("00000801", 3) + PICTURES, "begins with 00000801, not 00000803"),
        (IMAGES, header("00000803", 3, 28), "ends within its header of 16 bytes"),
        (IMAGES, header("00000803", 3, 32, 32) + bytes(3072), "items of 32 × 32, .* 28 × 28"),
        (IMAGES, header("00000803", 3, 28, 28) + PICTURES[1:], r"2,351 bytes .* says 2,352 \(3"),
        (IMAGES, header("00000803", 0, 28, 28), r"0 bytes .* says 0 \(0 items\)"),
        (LABELS, header("00000801", 4) + bytes(4), "4 labels, but .*images.* 3 pictures"),
        (LABELS, header("00000801", 3) + b"\x00\x0a\x00", "label 1 is 10, over 9"),
    ],
)
def test_a_damaged_file_is_named(directory, file, content, message):
    (directory / file).write_bytes(content)
    said = error_line(load, directory)
    assert said.startswith(f"{directory / file} ")
    assert re.search(message, said)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda packed: packed[:-9], "Compressed file ended before the end-of-stream marker"),
        (lambda packed: packed[:-8] + bytes(8), "CRC check failed"),
        (lambda packed: packed[:10] + b"\xff" * 9 + packed[19:], "Error -3 while decompressing"),
    ],
)
def test_a_damaged_compressed_file_is_named(directory, spoil, message):
    plain = directory / LABELS
    packed = directory / f"{LABELS}.gz"
    packed.write_bytes(spoil(gzip.compress(plain.read_bytes())))
    plain.unlink()
    assert error_line(load, directory).startswith(f"{packed} is damaged: {message}")


def test_what_is_not_there_or_no_file_is_named(directory):
    (directory / IMAGES).unlink()
    assert error_line(load, directory) == (
        f"{directory / IMAGES} is missing: the directory must hold MNIST's four files, plain or .gz"
    )
    (directory / IMAGES).mkdir()
    said = "cannot be read: it is a directory, not a regular file"
    assert error_line(load, directory) == f"{directory / IMAGES} {said}"
    said = "holds no MNIST: --data takes auto, synthetic, "
    assert error_line(load, directory / LABELS).startswith(f"{directory / LABELS} {said}")


def write_npz(path, of, **changed):
    """Write the examples of a data set as Keras does, and return the file's path."""
    arrays = {
        "x_train": of.train.inputs[:, 0],
        "y_train": of.train.labels,
        "x_test": of.test.inputs[:, 0],
        "y_test": of.test.labels,
    }
    np.savez(path, **{name: a for name, a in (arrays | changed).items() if a is not None})
    return path


@pytest.mark.parametrize("form", ["folder above", "compressed", "Keras' file", "Keras' folder"])
def test_the_same_digits_come_in_many_forms(tmp_path, directory, form):
    expected, root = load(directory), tmp_path / "root"
    root.mkdir()
    if form == "folder above":  # as torchvision makes it
        (root / "MNIST").mkdir()
        found, named = directory.rename(root / "MNIST" / "raw"), root
    elif form == "compressed":
        found = named = compress(directory)
    else:
        found = write_npz(root / "mnist.npz", expected)
        named = found if form == "Keras' file" else root
    dataset = load(named)
    assert dataset.sha256() == expected.sha256()
    assert dataset.name.endswith(f" in {found}")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_test": None}, "is damaged: 'x_test is not a file in the archive'"),
        ({"x_test": np.zeros((3, 28, 27), np.uint8)}, "is damaged: x_test is (3, 28, 27) uint8,"),
        ({"y_test": np.zeros((2, 1), np.uint8)}, "is damaged: y_test is (2, 1) uint8, where"),
        ({"y_test": np.zeros(2, np.uint8)}, "has 2 labels, but x_test 3 pictures"),
        ({"y_test": np.full(3, 10, np.uint8)}, "is damaged: label 0 is 10, over 9"),
        ({"y_test": np.array([{}, {}])}, "is damaged: Object arrays cannot be loaded"),
    ],
)
def test_a_damaged_npz_is_named(tmp_path, directory, changed, message):
    path = write_npz(tmp_path / "mnist.npz", load(directory), **changed)
    assert error_line(load, path).startswith(f"{path} {message}")


@pytest.mark.parametrize("kept", [4, -1])
def test_a_truncated_npz_is_an_error(tmp_path, directory, kept):
    path = write_npz(tmp_path / "mnist.npz", load(directory))
    path.write_bytes(path.read_bytes()[:kept])
    assert error_line(load, path).startswith(f"{path} is damaged: ")


def test_an_npz_of_more_than_the_memory_is_damaged(tmp_path, directory):
    path = write_npz(tmp_path / "mnist.npz", load(directory))
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000000, 28, 28), }"
    with zipfile.ZipFile(path, "w") as archive:
        length = len(header).to_bytes(2, "little")
        archive.writestr("x_train.npy", b"\x93NUMPY\x01\x00" + length + header.encode())
    assert error_line(load, path).startswith(f"{path} is damaged: Unable to allocate")


def test_an_npz_of_many_bytes_is_refused_unread(tmp_path, directory, monkeypatch):
    path = write_npz(tmp_path / "mnist.npz", load(directory))
    monkeypatch.setattr(mnist, "MAX_FILE_BYTES", path.stat().st_size)
    np.savez_compressed(path, x_train=np.zeros((100, 28, 28), np.uint8))
    assert error_line(load, path) == f"{path} is too large: it holds 78,528 bytes"
