"""Test what "auto" loads of each source: its official files in the cache, else synthetic data."""

import pytest
from caches import compress, pack, trust, write_reviews
from samples import write_cifar, write_mnist

from crossbench import data
from crossbench.data import cifar10, imdb, mnist, synthetic, synthetic_reviews, synthetic_text, text
from crossbench.data.sources import CIFAR10, IMDB, MNIST, Text, TinyShakespeare

FILES, A_TEXT = "OFFICIAL_FILES", "a synthetic text is"
SOURCES = {
    "CIFAR-10": (CIFAR10(), cifar10, FILES, synthetic.load_cifar10, "synthetic pictures are"),
    "MNIST": (MNIST(), mnist, FILES, synthetic.load_mnist, "synthetic pictures are"),
    "IMDB": (
        *(IMDB(words=99, length=8), imdb, FILES),
        *(synthetic_reviews.load, "synthetic reviews are"),
    ),
    "Nietzsche's text": (
        *(Text(length=4, step=3), text, "NIETZSCHE", synthetic_text.load, A_TEXT),
    ),
    "Shakespeare's text": (
        *(TinyShakespeare(length=4), text, "SHAKESPEARE", synthetic_text.load, A_TEXT),
    ),
}
"""By the name of its official data: a source, its module, the name of its official files there,
what makes examples instead, and how.
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return what writes a source's files into the cache; trust them as the official ones."""
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there

    def write(name):
        _, module, official, *_ = SOURCES[name]
        folder = tmp_path / "cache" / getattr(module, official).folder
        folder.parent.mkdir()
        if module is cifar10:
            write_cifar(folder)
        elif module is mnist:
            compress(write_mnist(folder))
        else:
            folder.mkdir()
            if module is imdb:
                pack(write_reviews(tmp_path / "aclImdb"), folder / "aclImdb_v1.tar.gz")
            else:
                (folder / "nietzsche.txt").write_text("ab" * 50)
                (folder / "input.txt").write_text("ab" * 50)
        trust(monkeypatch, module, official, folder)
        return folder

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


@pytest.mark.parametrize("name", SOURCES)
def test_a_damaged_file_in_the_cache_is_not_used(cache, shorten_synthetic, name):
    source, *_ = SOURCES[name]
    for path in cache(name).iterdir():
        path.write_bytes(path.read_bytes()[:-3073])
    assert data.load(source, "auto", 0).note.startswith(f"{name} is not available (https://")


@pytest.fixture
def shorten_synthetic(monkeypatch):
    for *_, make, what in SOURCES.values():
        few = (5_000,) if what == A_TEXT else (60, 20, *make.__defaults__[2:])
        monkeypatch.setattr(make, "__defaults__", few)


@pytest.mark.parametrize("name", SOURCES)
def test_auto_falls_back_to_synthetic_data(monkeypatch, tmp_path, shorten_synthetic, name):
    source, module, official, _, what = SOURCES[name]
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there
    found, made = (data.load(source, where, seed=3) for where in ("auto", "synthetic"))
    assert (found.name, found.sha256(), made.note) == (made.name, made.sha256(), None)
    assert found.name.endswith("(seed 3)")
    url = next(iter(getattr(module, official).sha256))
    assert found.note.startswith(f"{name} is not available ({url}: ")
    assert found.note.endswith(f"): {what} used instead")
    assert data.is_synthetic(source, "auto", found.note)
