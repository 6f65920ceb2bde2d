"""Test what "auto" loads of each source: its official files in the cache, else synthetic data."""

import gzip

import pytest
from caches import compress, error_line, pack, trust, write_reviews
from samples import write_cifar, write_mnist

from crossbench import data
from crossbench.data import (
    cifar10,
    imdb,
    mnist,
    shakespeare,
    synthetic,
    synthetic_reviews,
    synthetic_text,
    text,
)
from crossbench.data.sources import CIFAR10, IMDB, MNIST, Text, TinyShakespeare

SOURCES = {
    "CIFAR-10": (CIFAR10(), cifar10, synthetic.load_cifar10, "synthetic pictures are"),
    "MNIST": (MNIST(), mnist, synthetic.load_mnist, "synthetic pictures are"),
    "IMDB": (IMDB(words=99, length=8), imdb, synthetic_reviews.load, "synthetic reviews are"),
    "Nietzsche's text": (Text(length=4, step=3), text, synthetic_text.load, "a synthetic text is"),
    "Shakespeare's text": (
        *(TinyShakespeare(length=4), shakespeare, synthetic_text.load, "a synthetic text is"),
    ),
}
"""By the name of its official data: a source, its module, what makes examples instead, and how."""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return what writes a source's files into the cache; trust them as the official ones."""
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))

    def write(name, file="", spoil=None):
        module = SOURCES[name][1]
        folder = tmp_path / "cache" / module.OFFICIAL_FILES.folder
        folder.parent.mkdir()
        if module is cifar10:
            monkeypatch.setattr(cifar10, "FILE_BYTES", 20 * cifar10.RECORD_BYTES)
            write_cifar(folder)
        elif module is mnist:
            compress(write_mnist(folder))
        else:
            folder.mkdir()
            if module is imdb:
                pack(write_reviews(tmp_path / "aclImdb"), folder / "aclImdb_v1.tar.gz")
            else:
                (folder / module.FILE).write_text("ab" * 50)
        if spoil:
            (folder / file).write_bytes(spoil((folder / file).read_bytes()))
        if module is not cifar10:  # its unpacked files have no digests
            trust(monkeypatch, module, folder)
        return folder / file

    return write


@pytest.mark.parametrize("name", SOURCES)
def test_auto_loads_the_official_files_in_the_cache(cache, name):
    source, *_ = SOURCES[name]
    cache(name)
    dataset = data.load(source, "auto", 0)
    assert (dataset.name.removesuffix(" reviews"), dataset.note) == (name, None)
    path = data.published_path(source, "auto", dataset.name, dataset.note)
    assert (path is None) == (name != "CIFAR-10")
    assert path is None or data.load(source, path, 0).sha256() == dataset.sha256()


@pytest.mark.parametrize(
    ("name", "file", "spoil", "what"),
    [
        (
            *("CIFAR-10", "data_batch_3.bin", lambda raw: raw[:-3073]),
            "is damaged: it has 58,387 bytes, where the official file has 61,460",
        ),
        (
            *("MNIST", "train-labels-idx1-ubyte.gz"),
            lambda raw: gzip.compress(bytes.fromhex("0000080100000003") + bytes(3)),
            "has 3 labels, but train-images-idx3-ubyte.gz 40 pictures: they must belong together",
        ),
        (
            *("IMDB", "aclImdb_v1.tar.gz", lambda raw: raw[:-4]),
            "is damaged: Compressed file ended before the end-of-stream marker was reached",
        ),
        (
            *("Nietzsche's text", "nietzsche.txt", lambda raw: b"\xff"),
            "is not UTF-8 (at byte 0): save it in this encoding",
        ),
    ],
)
def test_a_damaged_file_in_the_cache_is_removed(cache, name, file, spoil, what):
    path = cache(name, file, spoil)
    assert error_line(data.load, SOURCES[name][0], "auto", 0) == (
        f"{path} {what}; it was removed, and the next run downloads it again"
    )
    assert not path.exists()


@pytest.mark.parametrize("name", SOURCES)
def test_auto_falls_back_to_synthetic_data(monkeypatch, tmp_path, name):
    source, module, make, what = SOURCES[name]
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr(
        make, "__defaults__", (5_000,) if "text" in name else (60, 20, *make.__defaults__[2:])
    )
    found, made = (data.load(source, where, seed=3) for where in ("auto", "synthetic"))
    assert (found.name, found.sha256(), made.note) == (made.name, made.sha256(), None)
    assert found.name.endswith("(seed 3)")
    url = next(iter(module.OFFICIAL_FILES.sha256))
    assert found.note.startswith(f"{name} is not available ({url}: ")
    assert found.note.endswith(f"): {what} used instead")
    assert data.is_synthetic(source, "auto", found.note)
