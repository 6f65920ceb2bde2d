"""What is opened and how much is read: of every source, and of archives."""

import gzip
import io
import os
import pickle
import signal
import socket
import tarfile
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from samples import write_cifar

from crossbench import data
from crossbench.data import cifar10, files, imdb
from crossbench.data.files import ArchiveBounds, DamagedFile
from crossbench.data.sources import CIFAR10, IMDB, MNIST, Text
from crossbench.errors import DataError

MEBIBYTE = 2**20
BOUNDS = ArchiveBounds(packed=MEBIBYTE, unpacked=MEBIBYTE, member=1_000, members=50)


@pytest.fixture(autouse=True)
def alarm():
    """Fail what waits for ever."""

    def ring(*_):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def little_memory():
    """Fail what takes more than 100 MB at a time."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def write_mnist(directory, suffix=""):
    directory.mkdir()
    for prefix in ("train", "t10k"):
        for name, header, content in (
            ("images-idx3", "0000080300000002" + 2 * "0000001c", bytes(2 * 28 * 28)),
            ("labels-idx1", "0000080100000002", bytes(2)),
        ):
            raw = bytes.fromhex(header) + content
            path = directory / f"{prefix}-{name}-ubyte{suffix}"
            path.write_bytes(gzip.compress(raw) if suffix else raw)
    return directory


def write_imdb(directory):
    for part in imdb.PARTS:
        (directory / part).mkdir(parents=True)
        (directory / part / "0_7.txt").write_text("a film")
    return directory


def write_text(directory):
    directory.mkdir()
    (directory / "a.txt").write_text("ab" * 50)
    return directory / "a.txt"


SOURCES = {
    "cifar-10": (CIFAR10(), write_cifar, "data_batch_2.bin"),
    "mnist": (MNIST(), write_mnist, "train-images-idx3-ubyte"),
    "mnist.gz": (MNIST(), partial(write_mnist, suffix=".gz"), "t10k-labels-idx1-ubyte.gz"),
    "imdb": (IMDB(words=9, length=4), write_imdb, "train/pos/0_7.txt"),
    "text": (Text(length=4, step=3), write_text, ""),
}


@pytest.fixture(params=SOURCES)
def place(request, tmp_path):
    """One of a source's files, which loads, and a function that loads them all."""
    source, write, name = SOURCES[request.param]
    where = write(tmp_path / "data")

    def load():
        return data.load(source, str(where), seed=0)

    assert len(load().train) > 0
    return where / name, load


def refused(load):
    with pytest.raises(DataError) as caught:
        load()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as end:
        before = Path.cwd()
        os.chdir(path.parent)  # a socket's address has at most some hundred bytes
        end.bind(path.name)
        os.chdir(before)


KINDS = {
    "a named pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_not_opened(place, kind, little_memory):
    path, load = place
    path.unlink()
    KINDS[kind](path)
    assert refused(load) == f"{path} cannot be read: it is {kind}, not a regular file"


def test_a_directory_in_a_files_place(place):
    path, load = place
    path.unlink()
    path.mkdir()
    assert str(path) in refused(load)


def test_a_named_pipe_that_replaces_the_file_while_it_is_opened_is_not_waited_for(
    tmp_path, monkeypatch
):
    pipe = tmp_path / "a"
    os.mkfifo(pipe)
    before = Path(__file__).stat()
    monkeypatch.setattr(Path, "stat", lambda _: before)  # what it was a moment ago
    assert "it is a named pipe" in refused(partial(files.read, pipe, 10, ""))


def test_a_link_to_a_file_is_read(place):
    path, load = place
    expected = load().sha256()
    path.rename(path.parent / "elsewhere")
    path.symlink_to("elsewhere")
    assert load().sha256() == expected


def test_a_dangling_link_is_a_missing_file(place):
    path, load = place
    path.unlink()
    path.symlink_to("nowhere")
    assert "is missing: " in refused(load)


def test_a_sparse_file_of_20_gib_is_not_read(place, little_memory):
    path, load = place
    os.truncate(path, 20 * 2**30)
    assert refused(load).startswith(f"{path} is too large: it has more than ")


@pytest.mark.parametrize("size", [10_000, 10_001])
def test_the_largest_file(tmp_path, size):
    path = tmp_path / "a"
    path.write_bytes(bytes(size))
    if size == 10_000:
        assert len(files.read(path, 10_000, "")) == size
    else:
        message = f"{path} is too large: it has more than 10,000 bytes"
        assert refused(partial(files.read, path, 10_000, "")) == message


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_a_file_that_says_it_is_empty_and_is_not_has_its_bound_too():
    path = Path("/proc/self/status")
    assert path.stat().st_size == 0
    assert "is too large: it has more than 10 bytes" in refused(partial(files.read, path, 10, ""))


def test_a_gzip_bomb_is_not_unpacked(tmp_path, little_memory):
    directory = write_mnist(tmp_path / "data", ".gz")
    path = directory / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes() + 20_000 * gzip.compress(bytes(MEBIBYTE)))  # 20 GB
    message = refused(partial(data.load, MNIST(), str(directory), 0))
    assert f"{path} is damaged: at least 1,569 bytes follow its header, which says 1,568" in message


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_header_that_promises_too_much_is_not_believed(tmp_path, suffix, little_memory):
    directory = write_mnist(tmp_path / "data", suffix)
    path = directory / f"train-labels-idx1-ubyte{suffix}"
    for n, message in ((600_001, "says 600,001 items, where at most 600,000"), (600_000, "2 byte")):
        raw = bytes.fromhex("00000801") + n.to_bytes(4, "big") + bytes(2)
        path.write_bytes(gzip.compress(raw) if suffix else raw)
        assert message in refused(partial(data.load, MNIST(), str(directory), 0))


def test_reviews_have_bounds(tmp_path, monkeypatch):
    directory = write_imdb(tmp_path / "data")
    (directory / "train/neg/1_7.txt").write_text("another")
    load = partial(data.load, IMDB(words=9, length=4), str(directory), 0)
    for bound, value, message in (
        ("MAX_REVIEWS", 1, f"{directory}/train/neg holds 2 reviews, where at most 1 are read"),
        ("MAX_PART_BYTES", 10, f"{directory}/train/neg is too large: it holds more than 10 bytes"),
        ("MAX_REVIEW_BYTES", 6, f"{directory}/train/neg/1_7.txt is too large: it has more than 6"),
    ):
        with monkeypatch.context() as bounded:
            bounded.setattr(imdb, bound, value)
            assert refused(load).startswith(message)
    load()


def pack(path, *members):
    """Write a tar.gz of (name, content)."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def unpack(path, bounds=BOUNDS):
    return list(files.read_archive(path, lambda member: member.name != "unwanted", bounds))


def test_files_of_an_archive(tmp_path):
    members = [("a", b"1"), ("unwanted", b"2"), ("b/c", b"x" * 1_000), ("d", b"")]
    path = pack(tmp_path / "a.tar.gz", *members)
    assert unpack(path) == [member for member in members if member[0] != "unwanted"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a", bytes(1_001))], "'a' in it has 1,001 bytes, where at most 1,000 are read"),
        ([("a", b"")] * 51, "holds more than 50 files"),
        ([("unwanted", bytes(2 * MEBIBYTE))], "holds more than 1,048,576 bytes decompressed"),
        ([("x" * 100_000, b"")], "a header in it has no sensible size"),
    ],
)
def test_an_archive_has_bounds(tmp_path, members, message):
    path = pack(tmp_path / "a.tar.gz", *members)
    said = refused(partial(unpack, path))
    assert str(path) in said
    assert message in said


def test_an_archive_that_is_too_large_on_the_disk(tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(bytes(MEBIBYTE + 1))
    assert refused(partial(unpack, path)).endswith("is too large: it has more than 1,048,576 bytes")


@pytest.mark.parametrize(
    "read",
    [lambda path: cifar10.unpack(path, path.parent / "out"), imdb.read_archive],
    ids=["cifar-10", "imdb"],
)
@pytest.mark.parametrize("name", ["unwanted", "aclImdb/train/pos/1.txt", "data_batch_1.bin"])
def test_a_tar_bomb_is_not_unpacked(tmp_path, read, name, little_memory):
    info = tarfile.TarInfo(name)
    info.size = 20_000 * MEBIBYTE
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf()) + 20_000 * gzip.compress(bytes(MEBIBYTE)))
    assert "is too large: " in refused(partial(read, path))


def test_zeros_behind_an_archive_have_their_bound_too(tmp_path, little_memory):
    path = pack(tmp_path / "a.tar.gz", ("a", b"1"))
    path.write_bytes(path.read_bytes() + 100 * gzip.compress(bytes(MEBIBYTE)))
    assert "holds more than 1,048,576 bytes decompressed" in refused(partial(unpack, path))


def test_an_archive_that_leads_back_to_an_earlier_header_is_not_followed_for_ever(tmp_path):
    first = tarfile.TarInfo("unwanted").tobuf(tarfile.GNU_FORMAT)
    header = bytearray(first)
    header[124:136] = (-512).to_bytes(12, "big", signed=True)  # the size
    header[148:156] = b"%06o\0 " % sum(header[:148] + b" " * 8 + header[156:])
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(first + bytes(header) + bytes(1_024)))
    assert refused(partial(unpack, path)) == f"{path} is damaged: its parts overlap"


def damaged(raw):
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


def test_a_damaged_archive_is_named_or_read(tmp_path):
    """In a line: EOFError, zlib.error, ReadError and the rest never come through."""
    content = os.urandom(900)
    path = pack(tmp_path / "a.tar.gz", ("a", content), ("b", content))
    caught = []
    for spoiled in damaged(path.read_bytes()):
        path.write_bytes(spoiled)
        try:
            unpack(path)
        except DamagedFile as error:
            caught.append(error)
    assert len(caught) > 80
    assert {error.path for error in caught} == {path}
    assert not any("\n" in str(error) for error in caught)


def test_a_damaged_files_error_travels_between_processes():
    error = pickle.loads(pickle.dumps(DamagedFile(Path("a"), "is damaged")))
    assert (str(error), error.path) == ("a is damaged", Path("a"))


@pytest.mark.parametrize("source", SOURCES)
def test_a_path_that_is_too_long_is_a_line(source):
    assert "x" * 5_000 in refused(partial(data.load, SOURCES[source][0], "x" * 5_000, 0))
