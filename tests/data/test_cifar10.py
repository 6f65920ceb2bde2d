"""Test the loading of CIFAR-10's files and archives."""

import io
import os
import pickle
import shutil
import tarfile

import numpy as np
import pytest
from caches import error_line as refusal, pack, write_archive

from crossbench import data
from crossbench.data import cifar10
from crossbench.data.sources import CIFAR10

FILES = [*cifar10.TRAIN_FILES, *cifar10.TEST_FILES]


def error_line(path):
    return refusal(data.load, CIFAR10(), str(path), 0)


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
        (lambda raw: raw[:-1], "61,459 bytes are not a whole number of 3073-byte records"),
        (lambda raw: b"", "0 bytes are not a whole number of 3073-byte records"),
        (lambda raw: raw[:3073] + b"\x0a" + raw[3074:], "record 1 has the label 10, over 9"),
    ],
)
def test_a_damaged_file_is_named(cifar_directory, spoil, message):
    file = cifar_directory / "data_batch_3.bin"
    file.write_bytes(spoil(file.read_bytes()))
    assert error_line(cifar_directory) == f"{file} is damaged: {message}"
    file.unlink()
    assert error_line(cifar_directory).startswith(f"{file} is missing: the folder must hold the")


def test_unpack_takes_the_six_files_and_nothing_else(tmp_path):
    link = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    evil = ("../../evil", b"x")
    files = [(f"cifar-10-batches-bin/{name}", bytes(cifar10.RECORD_BYTES)) for name in FILES]
    folder = tmp_path / "a/b"
    folder.mkdir(parents=True)
    archive = write_archive(folder / "cifar-10-binary.tar.gz", link, evil, *files)
    cifar10.unpack(folder)
    assert sorted(p.name for p in folder.iterdir()) == sorted([archive.name, *FILES])
    assert not any(p.is_symlink() for p in folder.iterdir())
    assert not list(tmp_path.rglob("evil"))
    assert len(cifar10.load_path(folder).train) == 5


class Python2Pickler(pickle._Pickler):
    """Write bytes as Python 2, of which the published files are, writes its strings."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_bytes(self, value):
        self.write(b"T" + len(value).to_bytes(4, "little") + value)

    dispatch[bytes] = save_bytes


def pickled(value):
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(value)
    return stream.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def pickled_by_python_3(batch):
    return pickle.dumps({key.decode(): value for key, value in batch.items()}, protocol=2)


def write_python_version(binary, directory, dumps=pickled):
    """Write the Python version of a folder of the binary version, and return its folder."""
    directory.mkdir(parents=True)
    for name in FILES:
        records = np.fromfile(binary / name, np.uint8).reshape(-1, cifar10.RECORD_BYTES)
        batch = {b"data": records[:, 1:].copy(), b"labels": records[:, 0].tolist()}
        path = directory / name.removesuffix(".bin")
        path.write_bytes(dumps(batch | {b"batch_label": b"testing"}))
    return directory


FORMS = ["folder above", "root of torchvision", "Python archive", "archive", "Python 3", "Keras"]


@pytest.mark.parametrize("form", FORMS)
def test_the_same_pictures_come_in_many_forms(tmp_path, cifar_directory, form):
    expected = data.load(CIFAR10(), str(cifar_directory), 0)
    root = tmp_path / "root"
    root.mkdir()
    python = root / "cifar-10-batches-py"
    match form:
        case "folder above":
            found, named = cifar_directory.rename(root / "cifar-10-batches-bin"), root
        case "Python archive":
            write_python_version(cifar_directory, python)
            found = named = pack(python, tmp_path / "any name")
        case "root of torchvision":  # has both the folder and the archive
            found, named = write_python_version(cifar_directory, python), root
            pack(python, root / "cifar-10-python.tar.gz")
        case "archive":
            found, named = pack(cifar_directory, root / "cifar-10-binary.tar.gz"), root
        case "Python 3":
            found = named = write_python_version(cifar_directory, python, pickled_by_python_3)
        case "Keras":
            inner = root / "datasets/cifar-10-batches-py-target/cifar-10-batches-py"
            found, named = write_python_version(cifar_directory, inner), root
    dataset = data.load(CIFAR10(), str(named), 0)
    assert dataset.sha256() == expected.sha256()
    assert dataset.name.endswith(f" in {found}")
    path = data.published_path(CIFAR10(), str(named), dataset.name, None)
    assert path == (str(found) if form == "folder above" else None)


def test_a_pickle_that_would_run_a_command_runs_none(tmp_path, cifar_directory):
    class Command:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    python = write_python_version(cifar_directory, tmp_path / "cifar-10-batches-py")
    file = python / "data_batch_3"
    file.write_bytes(pickle.dumps(Command()))
    assert error_line(python) == (
        f"{file} is damaged: it is no pickle of arrays (it calls posix.system)"
    )
    assert not (tmp_path / "ran").exists()
    pickle.loads(file.read_bytes())  # it would have
    assert (tmp_path / "ran").exists()


PIXELS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is no pickle of arrays (EOFError)"),
        (pickled([1]), "it holds no dictionary"),
        (pickled({}), "its data is no array (n, 3,072) of bytes"),
        (pickled({b"data": PIXELS / 1, b"labels": [1, 2]}), "its data is no array"),
        (pickled({b"data": PIXELS, b"labels": [1]}), "its labels are no list of 2"),
        (pickled({b"data": PIXELS, b"labels": [1, "a"]}), "its labels are no numbers from 0 to 9"),
        (pickled({b"data": PIXELS, b"labels": [1, 10]}), "record 1 has the label 10, over 9"),
    ],
)
def test_a_damaged_pickle_is_named(tmp_path, cifar_directory, content, message):
    python = write_python_version(cifar_directory, tmp_path / "py")
    (python / "test_batch").write_bytes(content)
    assert error_line(python).startswith(f"{python / 'test_batch'} is damaged: {message}")


def test_what_is_no_cifar10_is_refused_with_what_is_taken(tmp_path, cifar_directory):
    takes = "--data takes auto, synthetic, or CIFAR-10's binary or Python version: its folder, a f"
    (tmp_path / "text").write_text("text")
    (tmp_path / "empty").mkdir()
    foreign = pack(tmp_path / "empty", tmp_path / "foreign.tar.gz")
    for name in ("text", "empty", "foreign.tar.gz"):
        said = f"{tmp_path / name} holds no CIFAR-10: {takes}"
        assert error_line(tmp_path / name).startswith(said)
    assert error_line(tmp_path / "none").startswith(f"{tmp_path / 'none'} is missing: {takes}")
    foreign.write_bytes(foreign.read_bytes()[:20])
    assert error_line(foreign).startswith(f"{foreign} is damaged: ")
    (cifar_directory / "test_batch.bin").unlink()
    lacking = pack(cifar_directory, tmp_path / "lacking.tar.gz")
    assert error_line(lacking) == f"{lacking} is damaged: it lacks test_batch.bin"


def test_two_folders_are_not_chosen_between(tmp_path, cifar_directory):
    shutil.copytree(cifar_directory, tmp_path / "other")
    message = f"{tmp_path} holds {cifar_directory} and {tmp_path / 'other'}: name one of them"
    assert error_line(tmp_path) == message
