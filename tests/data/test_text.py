"""Test how a text is cut into pieces of characters."""

import numpy as np
import pytest
from caches import error_line

from crossbench import data
from crossbench.data.sources import Text


def load(path, length=4, step=3):
    return data.load(Text(length=length, step=step), str(path), seed=0)


@pytest.fixture
def text(tmp_path):
    """Write 100 characters in which no 5 in a row occur twice."""
    random = np.random.default_rng(0)
    path = tmp_path / "a.txt"
    path.write_text("".join(random.choice(list("abcdÉé \n.9"), 100)), encoding="utf-8")
    return path


@pytest.mark.parametrize(("length", "step"), [(4, 3), (7, 10)])
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
    assert dataset.test.inputs.tolist() == [[1, 0, 1, 0]]
    assert dataset.test.labels.tolist() == [1]
    path.write_text(("ab" * 25)[:-1])
    said = "is too short: 49 characters, where pieces of 4 need at least 50"
    assert error_line(load, path) == f"{path} {said}"


def test_an_unusable_file_is_named(tmp_path):
    path = tmp_path / "a.txt"
    takes = "this model takes auto, synthetic or a text file"
    assert error_line(load, path) == f"{path} is missing: {takes}"
    path.touch()
    assert error_line(load, tmp_path) == f"{tmp_path} is a directory: {takes}"
    inside = path / "b.txt"
    assert error_line(load, inside) == f"{inside} cannot be read: Not a directory"
