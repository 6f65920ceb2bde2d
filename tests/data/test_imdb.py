"""Test IMDB's token ids, against values by hand and against Keras' steps in plain Python."""

import io
import tarfile
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from caches import trust

from crossbench import data
from crossbench.data import imdb
from crossbench.data.sources import IMDB
from crossbench.inputs.errors import DataError

TINY = {
    "train/neg": ["Bad, bad film.", "A bad film!<br />A film"],
    "train/pos": ["It's a good film", "film"],
    "test/neg": ["a BAD unheard-of film"],
    "test/pos": ["good", "good film: it's a film"],
}
# film 5, a and bad 3 (bad is seen first: neg comes first), br, it's and good once, as they come
RANKS = {"film": 3, "bad": 4, "a": 5, "br": 6, "it's": 7, "good": 8}


def write(directory, texts=TINY):
    for part, reviews in texts.items():
        (directory / part).mkdir(parents=True)
        for i, text in enumerate(reviews):
            (directory / part / f"{i}_7.txt").write_text(text, encoding="utf-8")
    return directory


@pytest.fixture
def directory(tmp_path):
    return write(tmp_path / "aclImdb")


def load(directory, **source):
    return data.load(IMDB(**{"words": 100, "length": 8, **source}), str(directory), seed=0)


def test_ids_follow_the_frequency_of_words_and_padding_comes_first(directory):
    dataset = load(directory)
    expected = {
        (0, 0, 0, 0, 1, 4, 4, 3): 0,
        (0, 1, 5, 4, 3, 6, 5, 3): 0,
        (0, 0, 0, 1, 7, 5, 8, 3): 1,
        (0, 0, 0, 0, 0, 0, 1, 3): 1,
    }
    train = dict(zip(map(tuple, dataset.train.inputs.tolist()), dataset.train.labels, strict=True))
    assert train == expected
    # `unheard` and `of` are in no training review
    assert dataset.test.inputs.tolist() == [
        [0, 0, 0, 0, 1, 5, 4, 3],
        [0, 0, 0, 0, 0, 0, 1, 8],
        [0, 0, 1, 8, 3, 7, 5, 3],
    ]
    assert dataset.test.labels.tolist() == [0, 1, 1]
    assert dataset.train.inputs.dtype == np.int32
    assert dataset.train.labels.dtype == np.uint8
    assert dataset.vocabulary == 100
    assert dataset.name == f"IMDB reviews in {directory}"


@pytest.mark.parametrize("form", ["folder above", "archive", "folder with the archive"])
def test_the_same_reviews_come_in_many_forms(tmp_path, directory, form):
    expected, root = load(directory), tmp_path / "root"
    root.mkdir()
    found = directory
    if form == "folder above":
        found = directory.rename(root / "aclImdb")
    else:
        found = root / "aclImdb_v1.tar.gz"
        with tarfile.open(found, "w:gz") as tar:
            tar.add(directory, "aclImdb")
    dataset = load(found if form == "archive" else root)
    assert dataset.sha256() == expected.sha256()
    assert dataset.name == f"IMDB reviews in {found}"


def test_rare_words_share_an_id_and_long_reviews_lose_their_beginning(directory):
    dataset = load(directory, words=6, length=4)
    assert [1, 2, 5, 2] not in dataset.train.inputs.tolist()
    assert [2, 5, 2, 3] in dataset.train.inputs.tolist()  # it's a good film
    assert dataset.train.inputs.max() == 5
    assert dataset.vocabulary == 6


def test_the_ids_of_bigrams_follow_those_of_words(directory):
    dataset = load(directory, length=14, bigrams=True)
    train = dataset.train.inputs.tolist()
    pairs = {(4, 4), (4, 3), (1, 4), (1, 5), (5, 4), (3, 6), (6, 5), (5, 3), (1, 7), (7, 5)}
    pairs |= {(5, 8), (8, 3), (1, 3)}
    number = {pair: 101 + i for i, pair in enumerate(sorted(pairs))}
    bad = [1, 4, 4, 3, number[1, 4], number[4, 4], number[4, 3]]
    assert [0] * 7 + bad in train
    # of the test review only the pairs that training reviews have: not (1, 8), not (3, 7)
    good = [1, 8, 3, 7, 5, 3, number[8, 3], number[7, 5], number[5, 3]]
    assert dataset.test.inputs[2].tolist() == [0] * 5 + good
    assert dataset.test.inputs[1].tolist() == [0] * 12 + [1, 8]
    assert dataset.vocabulary == 101 + len(pairs) == dataset.train.inputs.max() + 1


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
    vocabulary = [f"w{i}" for i in range(300)] + ["don't", "Ünder", "LOUD", "x-y", "(z)", "12.5"]
    texts = {
        part: [
            " ".join(vocabulary[int(306 * u**3)] for u in random.random(random.integers(1, 60)))
            for _ in range(30)
        ]
        for part in imdb.REVIEW_FOLDERS
    }
    source = IMDB(words=120, length=50, bigrams=bigrams)
    dataset = data.load(source, str(write(tmp_path / "a", texts)), 0)
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
    directory = write(tmp_path / "a", texts)
    labels = load(directory).train.labels
    assert 10 < labels[:50].sum() < 40
    assert (load(directory).train.labels == labels).all()
    assert load(directory).test.labels.tolist() == [0] * 50 + [1] * 50


def test_a_review_without_words_is_the_start_id_alone(tmp_path):
    texts = TINY | {"test/pos": ["...", "?!"]}
    for bigrams in (False, True):
        dataset = load(write(tmp_path / str(bigrams), texts), bigrams=bigrams)
        assert dataset.test.inputs[1:].tolist() == [[0] * 7 + [1]] * 2


def test_training_reviews_without_words_have_no_bigrams(tmp_path):
    texts = TINY | {"train/neg": ["."], "train/pos": ["!"]}
    dataset = load(write(tmp_path / "a", texts), bigrams=True)
    assert dataset.test.inputs.tolist() == [[0] * 7 + [1]] * 3
    assert dataset.vocabulary == 101


def write_archive(path, texts=TINY, directory="aclImdb"):
    path.parent.mkdir(parents=True, exist_ok=True)
    members = [
        (f"{directory}/{part}/{i}_7.txt", text.encode(errors="surrogateescape"))
        for part, reviews in texts.items()
        for i, text in enumerate(reviews)
    ]
    others = [(f"{directory}/README", b"x"), (f"{directory}/train/unsup/0_0.txt", b"more words")]
    with tarfile.open(path, "w:gz") as tar:
        for name, raw in (*reversed(members), *others):
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return path


@pytest.fixture
def cached(monkeypatch, tmp_path):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "imdb" / "aclImdb_v1.tar.gz"


def load_cached():
    return data.load(IMDB(words=100, length=8), "auto", seed=0)


def test_auto_uses_the_cached_archive(monkeypatch, cached, directory):
    write_archive(cached)
    trust(monkeypatch, imdb, cached.parent)
    dataset = load_cached()
    assert (dataset.name, dataset.note) == ("IMDB reviews", None)
    assert dataset.sha256() == load(directory).sha256()


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("kept", [0, 5, 30, 0.5, 0.9, -9, -4, -1])
def test_a_truncated_archive_is_removed_from_the_cache(monkeypatch, cached, kept, trusted):
    raw = write_archive(cached).read_bytes()
    cached.write_bytes(raw[: int(kept * len(raw)) if isinstance(kept, float) else kept])
    if trusted:  # what only the reader sees
        trust(monkeypatch, imdb, cached.parent)
    with pytest.raises(DataError) as caught:
        load_cached()
    assert str(caught.value).startswith(f"{cached} is damaged: ")
    assert str(caught.value).endswith("; it was removed, and the next run downloads it again")
    assert "\n" not in str(caught.value)
    assert not cached.exists()


def test_an_archive_of_something_else_is_removed_from_the_cache(monkeypatch, cached):
    write_archive(cached, directory="other")
    trust(monkeypatch, imdb, cached.parent)
    with pytest.raises(DataError, match=r"train/neg holds no reviews; it was removed"):
        load_cached()
    assert not cached.exists()


def test_a_review_in_the_archive_that_is_not_utf8_is_named(tmp_path):
    path = write_archive(tmp_path / "a.tar.gz", TINY | {"test/pos": ["\udce9"]})
    with pytest.raises(DataError, match=r"'aclImdb/test/pos/0_7.txt' in it is not UTF-8 \(at byte"):
        imdb.read_archive(path)


def test_auto_falls_back_to_synthetic_reviews(monkeypatch, tmp_path):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr(data.synthetic_reviews.load, "__defaults__", (60, 20))
    dataset = data.load(IMDB(words=100, length=8), "auto", seed=3)
    assert dataset.name == "synthetic reviews (seed 3)"
    assert dataset.note.startswith("IMDB is not available (https://ai.stanford.edu")
    assert dataset.note.endswith("synthetic reviews are used instead")


def error_line(directory):
    with pytest.raises(DataError) as caught:
        load(directory)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_folder_is_named(directory):
    for path in (directory / "test/pos").iterdir():
        path.unlink()
    assert (
        error_line(directory)
        == f"{directory}/test/pos holds no reviews: they are files named *.txt"
    )
    (directory / "test/pos").rmdir()
    assert f"{directory}/test/pos is missing: the directory must be the unpacked" in error_line(
        directory
    )
    (directory / "test/pos").write_text("a file")
    assert f"{directory}/test/pos is missing" in error_line(directory)
    file = directory / "train/neg/0_7.txt"
    assert error_line(file).startswith(f"{file} is not IMDB: --data takes auto, synthetic, or")


def test_a_review_that_is_not_utf8_is_named(directory):
    file = directory / "train/pos/1_7.txt"
    file.write_bytes(b"caf\xe9 noir")
    assert error_line(directory) == f"{file} is not UTF-8 (at byte 3)"


def test_a_file_that_cannot_be_read_is_named(directory):
    file = directory / "train/pos/1_7.txt"
    file.unlink()
    file.mkdir()
    assert error_line(directory) == f"{file} cannot be read: Is a directory"
