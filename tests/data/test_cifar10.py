"""Test the loading of CIFAR-10's files, archive and cache."""

import io
import tarfile

import numpy as np
import pytest

from crossbench import data
from crossbench.data import cifar10
from crossbench.data.sources import CIFAR10
from crossbench.inputs.errors import DataError

FILES = [*cifar10.TRAIN_FILES, *cifar10.TEST_FILES]


def test_the_binary_format_is_read(tmp_path):
    for number, name in enumerate(FILES):
        planes = np.zeros((2, 3, 32, 32), np.uint8)
        planes[1, 2, 3, 4] = 100 + number  # second record: blue, row 3, column 4
        records = b"\x07" + planes[0].tobytes() + bytes([number]) + planes[1].tobytes()
        (tmp_path / name).write_bytes(records)
    dataset = data.load(CIFAR10(), str(tmp_path), seed=0)
    assert len(dataset.train) == 10
    assert dataset.train.labels[:4].tolist() == [7, 0, 7, 1]
    assert dataset.train.inputs[3, 2, 3, 4] == 101
    assert dataset.test.labels.tolist() == [7, 5]
    assert str(tmp_path) in dataset.name


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: raw[:-1], "not a whole number of 3073-byte records"),
        (lambda raw: raw + b"\0", "not a whole number of 3073-byte records"),
        (lambda raw: b"", "0 bytes are not a whole number"),
        (lambda raw: raw[:3073] + b"\x0a" + raw[3074:], "record 1 has the label 10, over 9"),
    ],
)
def test_a_damaged_file_is_named(cifar_directory, spoil, message):
    file = cifar_directory / "data_batch_3.bin"
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(DataError, match=message) as caught:
        data.load(CIFAR10(), str(cifar_directory), seed=0)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(cifar_directory):
    (cifar_directory / "test_batch.bin").unlink()
    with pytest.raises(DataError, match=r"test_batch\.bin is missing"):
        data.load(CIFAR10(), str(cifar_directory), seed=0)


def write_archive(path, members):
    """Write a tar.gz of members that are (name, content) or a TarInfo."""
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return path


def test_unpack_takes_the_six_files_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "FILE_BYTES", cifar10.RECORD_BYTES)
    link = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    evil = ("../../evil", b"x")
    files = [(f"cifar-10-batches-bin/{name}", bytes(cifar10.RECORD_BYTES)) for name in FILES]
    cifar10.unpack(write_archive(tmp_path / "a.tar.gz", [link, evil, *files]), tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(FILES)
    assert not any(p.is_symlink() for p in (tmp_path / "out").iterdir())
    assert not list(tmp_path.rglob("evil"))
    assert len(cifar10.load_directory(tmp_path / "out").train) == 5


def test_an_archive_without_a_file_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "FILE_BYTES", cifar10.RECORD_BYTES)
    files = [(name, bytes(cifar10.RECORD_BYTES)) for name in FILES[:-1]]
    with pytest.raises(DataError, match=r"lacks test_batch\.bin"):
        cifar10.unpack(write_archive(tmp_path / "a.tar.gz", files), tmp_path / "out")


def test_auto_falls_back_to_synthetic_pictures(monkeypatch, tmp_path):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr(data.synthetic.load_cifar10, "__defaults__", (60, 20))
    dataset = data.load(CIFAR10(), "auto", seed=3)
    assert dataset.name == "synthetic (seed 3)"
    assert "CIFAR-10 is not available (https://www.cs.toronto.edu" in dataset.note
    assert "synthetic pictures are used instead" in dataset.note


def test_auto_uses_the_cache(monkeypatch, tmp_path, cifar_directory):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cifar10, "FILE_BYTES", 20 * cifar10.RECORD_BYTES)
    (tmp_path / "cache").mkdir()
    cifar_directory.rename(tmp_path / "cache" / "cifar-10")
    dataset = data.load(CIFAR10(), "auto", seed=0)
    assert dataset.name == "CIFAR-10"
    assert dataset.note is None
    assert len(dataset.train) == 100


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: raw[:-3073], "it has 58,387 bytes, where the official file has 61,460"),
        (lambda raw: b"", "it has 0 bytes"),
        (lambda raw: b"\x0a" + raw[1:], "record 0 has the label 10, over 9"),
    ],
)
def test_a_damaged_file_in_the_cache_is_removed(
    monkeypatch, tmp_path, cifar_directory, spoil, message
):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cifar10, "FILE_BYTES", 20 * cifar10.RECORD_BYTES)
    (tmp_path / "cache").mkdir()
    cached = cifar_directory.rename(tmp_path / "cache" / "cifar-10")
    file = cached / "data_batch_3.bin"
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(DataError, match=message) as caught:
        data.load(CIFAR10(), "auto", seed=0)
    assert str(caught.value).startswith(f"{file} is damaged: ")
    assert str(caught.value).endswith("; it was removed, and the next run downloads it again")
    assert len(list(cached.iterdir())) == 5
    assert not cifar10.OFFICIAL_FILES.is_cached()


@pytest.mark.parametrize("kept", [0, 1, 5, 10, 100, 0.3, 0.5, 0.9, -9, -8, -4, -1])
def test_a_truncated_archive_is_an_error(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(cifar10, "FILE_BYTES", cifar10.RECORD_BYTES)
    content = np.random.default_rng(0).bytes(cifar10.RECORD_BYTES)
    path = write_archive(tmp_path / "a.tar.gz", [(name, content) for name in FILES])
    raw = path.read_bytes()
    path.write_bytes(raw[: int(kept * len(raw)) if isinstance(kept, float) else kept])
    with pytest.raises(DataError, match="is damaged: ") as caught:
        cifar10.unpack(path, tmp_path / "out")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("at", [0, 2, 3, 10, 0.1, 0.5, 0.9, -8, -1])
def test_a_changed_archive_is_an_error(tmp_path, monkeypatch, at):
    monkeypatch.setattr(cifar10, "FILE_BYTES", cifar10.RECORD_BYTES)
    content = np.random.default_rng(0).bytes(cifar10.RECORD_BYTES)
    path = write_archive(tmp_path / "a.tar.gz", [(name, content) for name in FILES])
    raw = bytearray(path.read_bytes())
    start = int(at * len(raw)) if isinstance(at, float) else at % len(raw)
    for i in range(start, min(start + 9, len(raw))):
        raw[i] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(DataError, match="is damaged: "):
        cifar10.unpack(path, tmp_path / "out")
