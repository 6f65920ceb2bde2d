"""Test IMDB's token ids, against Keras' steps in plain Python."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from caches import error_line, pack, write_reviews

from crossbench import data
from crossbench.data import imdb
from crossbench.data.sources import IMDB

TINY = {
    "train/neg": ["Bad, bad film.", "A bad film!<br />A film"],
    "train/pos": ["It's a good film", "film"],
    "test/neg": ["a BAD unheard-of film"],
    "test/pos": ["good", "good film: it's a film"],
}


@pytest.fixture
def directory(tmp_path):
    return write_reviews(tmp_path / "aclImdb", TINY)


def load(directory, **source):
    return data.load(IMDB(**{"words": 100, "length": 8, **source}), str(directory), seed=0)


@pytest.mark.parametrize("form", ["folder above", "archive", "folder with the archive"])
def test_the_same_reviews_come_in_many_forms(tmp_path, directory, form):
    expected, root = load(directory), tmp_path / "root"
    root.mkdir()
    (directory / "README").write_text("what is no review is left out")
    write_reviews(directory, {"train/unsup": ["more words"]})
    if form == "folder above":
        found = directory.rename(root / "aclImdb")
    else:
        found = pack(directory, root / "aclImdb_v1.tar.gz")
    dataset = load(found if form == "archive" else root)
    assert dataset.sha256() == expected.sha256()
    assert dataset.name == f"IMDB reviews in {found}"


def keras_ids(texts, source):
    """Return what Keras' Tokenizer, imdb.load_data, add_ngram and pad_sequences give."""
    filters = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'

    def tokens(text):
        return [
            w for w in "".join(" " if c in filters else c for c in text.lower()).split(" ") if w
        ]

    train = [tokens(text) for part in ("train/neg", "train/pos") for text in texts[part]]
    test = [tokens(text) for part in ("test/neg", "test/pos") for text in texts[part]]
    counts = Counter(word for review in train for word in review)
    ranked = sorted(counts.items(), key=lambda item: item[1], reverse=True)
    number = {word: i + 3 for i, (word, _) in enumerate(ranked)}
    splits = []
    for reviews in (train, test):
        known = [[1] + [number[w] for w in review if w in number] for review in reviews]
        splits.append([[2 if w >= source.words else w for w in review] for review in known])
    if source.bigrams:
        pairs = sorted({pair for review in splits[0] for pair in pairwise(review)})
        ids = {pair: i + source.words + 1 for i, pair in enumerate(pairs)}
        splits = [
            [review + [ids[p] for p in pairwise(review) if p in ids] for review in reviews]
            for reviews in splits
        ]
    cut = [[review[-source.length :] for review in reviews] for reviews in splits]
    return [[[0] * (source.length - len(review)) + review for review in part] for part in cut]


@pytest.mark.parametrize("bigrams", [False, True])
def test_random_reviews_get_the_ids_of_plain_python(tmp_path, bigrams):
    random = np.random.default_rng(0)
    vocabulary = ["don't", "Ünder", "LOUD", "x-y", "(z)", "12.5", "film!<br", "/>A"]
    vocabulary += [f"w{i}" for i in range(300)]
    texts = {
        part: [
            " ".join(vocabulary[int(308 * u**3)] for u in random.random(random.integers(1, 60)))
            for _ in range(30)
        ]
        for part in imdb.REVIEW_FOLDERS
    }
    source = IMDB(words=120, length=50, bigrams=bigrams)
    dataset = data.load(source, str(write_reviews(tmp_path / "a", texts)), 0)
    # 30 reviews a part are named 0_7 to 29_7, and are taken in the order of their names
    order = sorted(range(30), key=lambda i: f"{i}_7.txt")
    train, test = keras_ids({part: [texts[part][i] for i in order] for part in texts}, source)
    assert dataset.test.inputs.tolist() == test
    assert sorted(dataset.train.inputs.tolist()) == sorted(train)
    label = {tuple(review): i // 30 for i, review in enumerate(train)}
    assert [label[tuple(x)] for x in dataset.train.inputs.tolist()] == dataset.train.labels.tolist()
    assert dataset.train.inputs.max() < dataset.vocabulary


def test_training_reviews_are_shuffled_always_in_the_same_way(tmp_path):
    texts = {part: ["a film"] * 50 for part in imdb.REVIEW_FOLDERS}
    directory = write_reviews(tmp_path / "a", texts)
    labels = load(directory).train.labels
    assert labels.dtype == np.uint8
    assert 10 < labels[:50].sum() < 40
    assert (load(directory).train.labels == labels).all()
    assert load(directory).test.labels.tolist() == [0] * 50 + [1] * 50


def test_a_review_without_words_is_the_start_id_alone_and_has_no_bigrams(tmp_path):
    texts = TINY | {"train/neg": ["."], "train/pos": ["!"], "test/pos": ["...", "?!"]}
    for bigrams in (False, True):
        dataset = load(write_reviews(tmp_path / str(bigrams), texts), bigrams=bigrams)
        assert dataset.test.inputs.tolist() == [[0] * 7 + [1]] * 3
        assert dataset.vocabulary == 100 + bigrams


def test_what_is_wrong_in_an_archive_is_named(tmp_path):
    reviews = write_reviews(tmp_path / "aclImdb", {**TINY, "test/pos": ["\udce9"]})
    path = pack(reviews, tmp_path / "a.tar.gz")
    said = "is damaged: 'aclImdb/test/pos/0_7.txt' in it is not UTF-8 (at byte 0)"
    assert error_line(load, path) == f"{path} {said}"
    pack(reviews.rename(tmp_path / "other"), path)
    assert error_line(load, path) == f"{path} is damaged: train/neg holds no reviews"


def test_what_is_wrong_in_a_folder_is_named(directory):
    file = directory / "train/pos/1_7.txt"
    file.write_bytes(b"caf\xe9 noir")
    assert error_line(load, directory) == f"{file} is not UTF-8 (at byte 3)"
    file.unlink()
    folder = directory / "test/pos"
    for path in folder.iterdir():
        path.unlink()
    said = "holds no reviews: they are files named *.txt"
    assert error_line(load, directory) == f"{folder} {said}"
    folder.rmdir()
    said = f"{folder} is missing: the directory must be the unpacked aclImdb, with train/neg, "
    assert error_line(load, directory).startswith(said)
    folder.write_text("a file")
    assert error_line(load, directory).startswith(said)
    file = directory / "train/neg/0_7.txt"
    said = "holds no IMDB reviews: --data takes auto, synthetic, or IMDB's reviews: the folder"
    assert error_line(load, file).startswith(f"{file} {said}")
