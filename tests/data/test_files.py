"""Test which files and archives are opened and how much of them is read, for every source."""

import gzip
import os
import signal
import tarfile
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from caches import compress, error_line, write_archive, write_reviews
from samples import write_cifar, write_mnist

from crossbench import data
from crossbench.data import files, imdb
from crossbench.data.files import ArchiveBounds
from crossbench.data.sources import CIFAR10, IMDB, MNIST, Text
from crossbench.inputs.errors import DataError

MEBIBYTE = 2**20
BOUNDS = ArchiveBounds(packed=MEBIBYTE, unpacked=MEBIBYTE, member=1_000, members=50)


@pytest.fixture(autouse=True)
def time_limit():
    """Fail a test that waits for ever."""

    def ring(*_):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def little_memory():
    """Fail a test that uses more than 100 MB at a time."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def write_compressed_mnist(directory):
    return compress(write_mnist(directory, 2))


def write_text(directory):
    directory.mkdir()
    (directory / "a.txt").write_text("ab" * 50)
    return directory / "a.txt"


SOURCES = {
    "cifar-10": (CIFAR10(), write_cifar, "data_batch_2.bin"),
    "mnist": (MNIST(), write_mnist, "train-images-idx3-ubyte"),
    "mnist.gz": (MNIST(), write_compressed_mnist, "t10k-labels-idx1-ubyte.gz"),
    "imdb": (IMDB(words=9, length=4), write_reviews, "train/pos/0_7.txt"),
    "text": (Text(length=4, step=3), write_text, ""),
}


@pytest.fixture(params=SOURCES)
def source_file(request, tmp_path):
    """Return the path of one of a source's files, and a function that loads them all."""
    source, write, name = SOURCES[request.param]
    where = write(tmp_path / "data")

    def load():
        return data.load(source, str(where), seed=0)

    assert len(load().train) > 0
    return where / name, load


KINDS = {
    "a named pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_not_regular_is_not_opened(source_file, kind, little_memory):
    path, load = source_file
    path.unlink()
    KINDS[kind](path)
    assert error_line(load) == f"{path} cannot be read: it is {kind}, not a regular file"


def test_a_link_to_a_file_is_read(source_file):
    path, load = source_file
    expected = load().sha256()
    elsewhere = path.rename(path.parent / "elsewhere")
    path.symlink_to("elsewhere")
    assert load().sha256() == expected
    elsewhere.unlink()
    assert "is missing: " in error_line(load)


def test_a_sparse_file_of_20_gib_is_not_read(source_file, little_memory):
    path, load = source_file
    os.truncate(path, 20 * 2**30)
    assert error_line(load).startswith(f"{path} is too large: it has more than ")


def test_a_file_at_the_limit_is_read_and_a_larger_one_is_not(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(10_000))
    assert len(files.read(path, 10_000, "")) == 10_000
    path.write_bytes(bytes(10_001))
    message = f"{path} is too large: it has more than 10,000 bytes"
    assert error_line(files.read, path, 10_000, "") == message


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_the_limit_holds_for_a_file_that_claims_to_be_empty():
    path = Path("/proc/self/status")
    assert path.stat().st_size == 0
    assert "is too large: it has more than 10 bytes" in error_line(files.read, path, 10, "")


def test_a_gzip_bomb_is_not_unpacked(tmp_path, little_memory):
    directory = write_compressed_mnist(tmp_path / "data")
    path = directory / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes() + 20_000 * gzip.compress(bytes(MEBIBYTE)))  # 20 GB
    message = error_line(data.load, MNIST(), str(directory), 0)
    assert f"{path} is damaged: at least 1,569 bytes follow its header, which says 1,568" in message


def test_a_header_that_claims_too_many_items_is_an_error(tmp_path, little_memory):
    directory = write_mnist(tmp_path / "data", 2)
    path = directory / "train-labels-idx1-ubyte"
    for n, message in ((600_001, "says 600,001 items, where at most 600,000"), (600_000, "2 byte")):
        path.write_bytes(bytes.fromhex("00000801") + n.to_bytes(4, "big") + bytes(2))
        assert message in error_line(data.load, MNIST(), str(directory), 0)


def test_too_large_reviews_are_an_error(tmp_path, monkeypatch):
    directory = write_reviews(tmp_path / "data")
    (directory / "train/neg/1_7.txt").write_text("another")
    load = partial(data.load, IMDB(words=9, length=4), str(directory), 0)
    for bound, value, message in (
        ("MAX_BYTES", 10, f"{directory}/train/neg is too large: with it there are more than 10 by"),
        ("MAX_REVIEW_BYTES", 6, f"{directory}/train/neg/1_7.txt is too large: it has more than 6"),
    ):
        with monkeypatch.context() as bounded:
            bounded.setattr(imdb, bound, value)
            assert error_line(load).startswith(message)
    load()


def unpack(path, bounds=BOUNDS):
    return list(files.read_archive(path, lambda member: member.name != "unwanted", bounds))


def test_the_wanted_files_of_an_archive_are_read(tmp_path):
    members = [("a", b"1"), ("unwanted", b"2"), ("b/c", b"x" * 1_000), ("d", b"")]
    path = write_archive(tmp_path / "a.tar.gz", *members)
    assert unpack(path) == [member for member in members if member[0] != "unwanted"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            [("a", bytes(1_001))],
            "is too large: 'a' in it has 1,001 bytes, where at most 1,000 are read",
        ),
        ([("a", b"")] * 51, "holds more than 50 files"),
        (
            [("unwanted", bytes(2 * MEBIBYTE))],
            "is too large: it holds more than 1,048,576 bytes decompressed",
        ),
        (
            [("x" * 2 * MEBIBYTE, b"")],
            "is too large: it holds more than 1,048,576 bytes decompressed",
        ),
        ([("a", os.urandom(MEBIBYTE))], "is too large: it has more than 1,048,576 bytes"),
    ],
)
def test_an_archive_over_its_bounds_is_an_error(tmp_path, members, message, little_memory):
    path = write_archive(tmp_path / "a.tar.gz", *members)
    assert error_line(unpack, path).startswith(f"{path} {message}")


def test_the_bounds_hold_for_zeros_behind_an_archive(tmp_path, little_memory):
    path = write_archive(tmp_path / "a.tar.gz", ("a", b"1"))
    path.write_bytes(path.read_bytes() + 100 * gzip.compress(bytes(MEBIBYTE)))
    assert "holds more than 1,048,576 bytes decompressed" in error_line(unpack, path)


@pytest.mark.parametrize("size", [-512, 2**62])
def test_an_archive_whose_header_has_no_sensible_size_is_not_read_for_ever(tmp_path, size):
    """A size below 0 leads back to an earlier header, and one of exabytes far behind the end."""
    first = tarfile.TarInfo("unwanted").tobuf(tarfile.GNU_FORMAT)
    header = bytearray(first)
    header[124:136] = (size % 2**96).to_bytes(12, "big")
    header[124] |= 0x80
    header[148:156] = b"%06o\0 " % sum(header[:148] + b" " * 8 + header[156:])
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(first + bytes(header) + bytes(1_024)))
    assert error_line(unpack, path).startswith(f"{path} is damaged: ")


def damaged_variants(raw):
    """Yield the archive cut and changed in many ways."""
    for kept in (0, 1, 5, 10, 20, len(raw) // 2, len(raw) - 9, len(raw) - 8, len(raw) - 1):
        yield raw[:kept]
    for at in range(0, len(raw), max(1, len(raw) // 60)):
        yield raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :]
    tar = gzip.decompress(raw)
    for at in range(0, 1_536, 16):  # headers, packed again with the right checksum
        yield gzip.compress(tar[:at] + bytes([tar[at] ^ 0x15]) + tar[at + 1 :], 1)
    for kept in (0, 100, 512, 700, len(tar) // 2, len(tar) - 1_025):
        yield gzip.compress(tar[:kept], 1)


def test_a_damaged_archive_is_read_or_named_in_one_line(tmp_path):
    """The error has one line: EOFError, zlib.error, ReadError and the rest never come through."""
    content = os.urandom(900)
    path = write_archive(tmp_path / "a.tar.gz", ("a", content), ("b", content))
    caught = []
    for spoiled in damaged_variants(path.read_bytes()):
        path.write_bytes(spoiled)
        try:
            unpack(path)
        except DataError as error:
            caught.append(error)
    assert len(caught) > 80
    assert all(str(error).startswith(f"{path} ") for error in caught)
    assert not any("\n" in str(error) for error in caught)


@pytest.mark.parametrize("source", SOURCES)
def test_a_path_that_is_too_long_is_an_error_in_one_line(source):
    assert "x" * 5_000 in error_line(data.load, SOURCES[source][0], "x" * 5_000, 0)
