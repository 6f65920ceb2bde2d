"""Test how a text is cut into pieces of characters."""

import os

import numpy as np
import pytest
from caches import trust

from crossbench import data
from crossbench.data.sources import Text
from crossbench.inputs.errors import DataError


def load(path, length=4, step=3):
    return data.load(Text(length=length, step=step), str(path), seed=0)


@pytest.fixture
def text(tmp_path):
    """Write 100 characters in which no 5 in a row occur twice."""
    random = np.random.default_rng(0)
    path = tmp_path / "a.txt"
    path.write_text("".join(random.choice(list("abcdÉé \n.9"), 100)), encoding="utf-8")
    return path


@pytest.mark.parametrize(("length", "step"), [(4, 3), (4, 1), (7, 10), (9, 3)])
def test_pieces_are_those_of_keras_example(text, length, step):
    dataset = load(text, length, step)
    lower = text.read_text(encoding="utf-8").lower()
    alphabet = sorted(set(lower))
    for split, part in ((dataset.train, lower[:90]), (dataset.test, lower[90:])):
        starts = range(0, len(part) - length, step)
        assert split.inputs.tolist() == [
            [alphabet.index(c) for c in part[i : i + length]] for i in starts
        ]
        assert split.labels.tolist() == [alphabet.index(part[i + length]) for i in starts]
        assert split.inputs.dtype == split.labels.dtype == np.int32
        assert split.inputs.flags.c_contiguous
    assert dataset.vocabulary == len(alphabet) == 9
    assert dataset.name == f"the text {text}"


def test_line_ends_of_all_systems_give_the_same_pieces(text, tmp_path):
    other = tmp_path / "b.txt"
    other.write_bytes(text.read_bytes().replace(b"\n", b"\r\n"))
    assert b"\r" in other.read_bytes()
    assert load(other).sha256() == load(text).sha256()


def test_a_text_must_be_long_enough_for_a_piece_in_each_split(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("ab" * 25)
    dataset = load(path)
    assert len(dataset.test) == 1
    assert dataset.test.inputs.tolist() == [[1, 0, 1, 0]]
    assert dataset.test.labels.tolist() == [1]
    path.write_text(("ab" * 25)[:-1])
    with pytest.raises(DataError, match=r"too short: 49 characters, where pieces of 4 need .* 50$"):
        load(path)


def test_a_text_that_is_too_large_is_an_error(tmp_path):
    path = tmp_path / "a.txt"
    path.touch()
    os.truncate(path, 20_000_001)
    with pytest.raises(DataError, match=r"is too large: it has more than 20,000,000 bytes$"):
        load(path)


def test_an_unusable_file_is_named(tmp_path):
    def error_line(path):
        with pytest.raises(DataError) as caught:
            load(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    path = tmp_path / "a.txt"
    assert "is missing: this model takes auto, synthetic or a text file" in error_line(path)
    path.write_bytes(b"")
    assert "is too short: 0 characters" in error_line(path)
    path.write_bytes(b"x" * 200 + b"\xff")
    assert "is not UTF-8 (at byte 200): save it in this encoding" in error_line(path)
    assert "is a directory: this model takes auto, synthetic or a text" in error_line(tmp_path)
    assert "cannot be read: Not a directory" in error_line(path / "b.txt")


def test_auto_uses_the_cache(monkeypatch, tmp_path, text):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "nietzsche").mkdir(parents=True)
    text.rename(tmp_path / "cache" / "nietzsche" / "nietzsche.txt")
    trust(monkeypatch, data.text, tmp_path / "cache" / "nietzsche")
    dataset = load("auto")
    assert (dataset.name, dataset.note) == ("Nietzsche's text", None)
    assert dataset.vocabulary == 9


@pytest.mark.parametrize("content", ["", "another text"])
def test_another_text_in_the_cache_is_removed(monkeypatch, tmp_path, content):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "cache" / "nietzsche" / "nietzsche.txt"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    with pytest.raises(DataError, match=r"not the official file .*; it was removed, and the"):
        load("auto")
    assert not file.exists()


def test_auto_falls_back_to_a_synthetic_text(monkeypatch, tmp_path):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr(data.synthetic_text.load, "__defaults__", (5_000,))
    dataset = load("auto")
    assert dataset.name == "synthetic text (seed 0)"
    assert dataset.note.startswith("Nietzsche's text is not available (https://s3.amazonaws.com")
    assert dataset.note.endswith("a synthetic text is used instead")
