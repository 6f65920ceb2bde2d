"""Test the loading of MNIST's IDX files, and of the cache."""

import gzip

import numpy as np
import pytest
from caches import trust

from crossbench import data
from crossbench.data import mnist
from crossbench.data.sources import MNIST
from crossbench.inputs.errors import DataError

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx_bytes(array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def write(directory, train=3, test=2):
    """Write MNIST's four files, plain: picture i is i at row 4, column 9, and has the label i."""
    directory.mkdir(exist_ok=True)
    for prefix, n in (("train", train), ("t10k", test)):
        images = np.zeros((n, 28, 28), np.uint8)
        images[:, 4, 9] = np.arange(n)
        (directory / f"{prefix}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (directory / f"{prefix}-labels-idx1-ubyte").write_bytes(idx_bytes(np.arange(n)))
    return directory


@pytest.fixture
def directory(tmp_path):
    return write(tmp_path / "mnist")


def load(directory):
    return data.load(MNIST(), str(directory), seed=0)


def test_the_idx_format_is_read(directory):
    dataset = load(directory)
    assert dataset.name == f"MNIST files in {directory}"
    assert dataset.train.inputs.shape == (3, 1, 28, 28)
    assert dataset.test.inputs.shape == (2, 1, 28, 28)
    assert dataset.train.inputs.dtype == dataset.train.labels.dtype == np.uint8
    assert dataset.train.inputs[2, 0, 4, 9] == 2
    assert dataset.train.inputs.sum() == 3
    assert dataset.train.labels.tolist() == [0, 1, 2]
    assert dataset.vocabulary is None


def test_compressed_files_give_the_same_data(directory, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in directory.iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert load(packed).sha256() == load(directory).sha256()


def header(magic, *sizes):
    return bytes.fromhex(magic) + b"".join(size.to_bytes(4, "big") for size in sizes)


PICTURES = bytes(3 * 28 * 28)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (IMAGES, b"", "begins with nothing, not 00000803"),
        (IMAGES, header("00000801", 3) + PICTURES, "begins with 00000801, not 00000803"),
        (IMAGES, header("00000d03", 3, 28, 28) + PICTURES, "begins with 00000d03, not 00000803"),
        (IMAGES, gzip.compress(bytes(64), mtime=0), "begins with 1f8b"),
        (IMAGES, header("00000803", 3, 28), "ends within its header of 16 bytes"),
        (IMAGES, header("00000803", 3, 32, 32) + bytes(3072), "items of 32 × 32, .* 28 × 28"),
        (IMAGES, header("00000803", 3, 28, 28) + PICTURES[1:], r"2,351 bytes .* says 2,352 \(3"),
        (IMAGES, header("00000803", 3, 28, 28) + PICTURES + b"\0", r"2,353 bytes .* says 2,352"),
        (IMAGES, header("00000803", 0, 28, 28), r"0 bytes .* says 0 \(0 items\)"),
        (IMAGES, header("00000803", 2**32 - 1, 2**16, 2**16), "items of 65536 × 65536"),
        (LABELS, header("00000801", 4) + bytes(4), "4 labels, but .*images.* 3 pictures"),
        (LABELS, header("00000801", 3) + b"\x00\x0a\x00", "label 1 is 10, over 9"),
    ],
)
def test_a_damaged_file_is_named(directory, file, content, message):
    (directory / file).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load(directory)
    assert str(directory / file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda packed: packed[:-9], "ended before the end-of-stream marker"),
        (lambda packed: packed[:-8] + bytes(8), "CRC check failed"),
        (lambda packed: packed[:12] + b"\xff" * 9 + packed[21:], "is damaged"),
        (lambda packed: b"plain" + packed, "Not a gzipped file"),
    ],
)
def test_a_damaged_compressed_file_is_named(directory, spoil, message):
    plain = directory / LABELS
    packed = directory / f"{LABELS}.gz"
    packed.write_bytes(spoil(gzip.compress(plain.read_bytes())))
    plain.unlink()
    with pytest.raises(DataError, match=message) as caught:
        load(directory)
    assert str(packed) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", [IMAGES, "t10k-labels-idx1-ubyte"])
def test_a_missing_file_is_named(directory, file):
    (directory / file).unlink()
    with pytest.raises(DataError, match=f"{file} is missing: .* four files, plain or .gz"):
        load(directory)


def test_a_directory_in_place_of_a_file_is_named(directory):
    (directory / IMAGES).unlink()
    (directory / IMAGES).mkdir()
    with pytest.raises(DataError, match=f"{IMAGES} cannot be read: Is a directory"):
        load(directory)


def test_a_file_in_place_of_the_directory_is_an_error(directory):
    with pytest.raises(DataError, match="is not MNIST: --data takes auto, synthetic, "):
        load(directory / IMAGES)


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


@pytest.mark.parametrize("form", ["folder above", "Keras' file", "folder of Keras' file"])
def test_the_same_digits_come_in_many_forms(tmp_path, directory, form):
    expected, root = load(directory), tmp_path / "root"
    root.mkdir()
    if form == "folder above":  # as torchvision makes it
        (root / "MNIST").mkdir()
        found, named = directory.rename(root / "MNIST" / "raw"), root
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
        (
            {"x_test": np.zeros((2, 28, 27), np.uint8)},
            r"is damaged: x_test is (2, 28, 27) uint8, w",
        ),
        ({"x_test": np.zeros((2, 28, 28))}, "is damaged: x_test is (2, 28, 28) float64, where"),
        ({"y_test": np.zeros((2, 1), np.uint8)}, "is damaged: y_test is (2, 1) uint8, where"),
        ({"y_test": np.zeros(3, np.uint8)}, "has 3 labels, but x_test 2 pictures"),
        ({"y_test": np.full(2, 10, np.uint8)}, "is damaged: label 0 is 10, over 9"),
        ({"y_test": np.array([{}, {}])}, "is damaged: Object arrays cannot be loaded"),
    ],
)
def test_a_damaged_npz_is_named(tmp_path, directory, changed, message):
    path = write_npz(tmp_path / "mnist.npz", load(directory), **changed)
    with pytest.raises(DataError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path} {message}")


@pytest.mark.parametrize("kept", [4, 100, 0.5, -1])
def test_a_truncated_npz_is_an_error(tmp_path, directory, kept):
    path = write_npz(tmp_path / "mnist.npz", load(directory))
    raw = path.read_bytes()
    path.write_bytes(raw[: int(kept * len(raw)) if isinstance(kept, float) else kept])
    with pytest.raises(DataError, match=f"^{path} is damaged: "):
        load(path)


def test_an_npz_of_many_bytes_is_refused_unread(tmp_path, directory, monkeypatch):
    path = write_npz(tmp_path / "mnist.npz", load(directory))
    monkeypatch.setattr(mnist, "MAX_FILE_BYTES", path.stat().st_size)
    np.savez_compressed(path, x_train=np.zeros((100, 28, 28), np.uint8))
    with pytest.raises(DataError, match=f"^{path} is too large: it holds 78,528 bytes"):
        load(path)


@pytest.fixture
def cached(monkeypatch, tmp_path, directory):
    """Write MNIST's files into a cache."""
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    cached = tmp_path / "cache" / "mnist"
    cached.mkdir(parents=True)
    for path in directory.iterdir():
        (cached / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    trust(monkeypatch, mnist, cached)
    return cached


def test_auto_uses_the_cache(cached):
    dataset = data.load(MNIST(), "auto", seed=0)
    assert (dataset.name, dataset.note) == ("MNIST", None)
    assert len(dataset.train) == 3


@pytest.mark.parametrize("spoil", [lambda raw: raw[:-1], lambda raw: b"", gzip.compress])
def test_a_damaged_file_in_the_cache_is_removed(cached, spoil):
    file = cached / f"{LABELS}.gz"
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(DataError) as caught:
        data.load(MNIST(), "auto", seed=0)
    assert str(caught.value) == (
        f"{file} is damaged: it is not the official file (SHA-256); it was removed, and the next "
        "run downloads it again"
    )
    assert len(list(cached.iterdir())) == 3


def test_labels_that_do_not_match_the_pictures_are_removed_from_the_cache(monkeypatch, cached):
    file = cached / f"{LABELS}.gz"
    file.write_bytes(gzip.compress(idx_bytes(np.arange(4))))
    trust(monkeypatch, mnist, cached)
    with pytest.raises(DataError, match=r"4 labels, but .* 3 pictures: .*; it was removed"):
        data.load(MNIST(), "auto", seed=0)
    assert not file.exists()


def test_auto_falls_back_to_synthetic_pictures(monkeypatch, tmp_path):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr(data.synthetic.load_mnist, "__defaults__", (60, 20))
    dataset = data.load(MNIST(), "auto", seed=3)
    assert dataset.train.inputs.shape == (60, 1, 28, 28)
    assert dataset.note.startswith(
        "MNIST is not available (https://ossci-datasets.s3.amazonaws.com"
    )
    assert dataset.note.endswith("synthetic pictures are used instead")
