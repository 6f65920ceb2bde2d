"""Film reviews, good or bad: https://ai.stanford.edu/~amaas/data/sentiment/ (Maas et al., 2011)

25,000 to train on and 25,000 to test on, a text file each, in train/pos, train/neg, test/pos and
test/neg. The archive's SHA-256 is that of TensorFlow Datasets (tensorflow/datasets,
tensorflow_datasets/url_checksums/imdb_reviews.txt).

What is made of them follows Keras, but from the reviews themselves (keras-team/keras 2:
keras/datasets/imdb.py, keras/preprocessing/text.py, examples/imdb_fasttext.py):

- A review is put in lower case, each of FILTERS becomes a blank, and what white space parts is a
  word: `it's` is one word, and `<br />` gives the word `br`.
- Words are numbered by how often they occur in the training reviews, the most frequent first; of
  equally frequent ones, the first seen. 0 pads, 1 starts a review, 2 stands for all words that
  would have a number of `words` or over, and words begin at 3. (Keras' own files count words from
  1 before they add 3, so there the most frequent one is 4.) A test review's words that are in no
  training review are left out.
- Bigrams are the pairs of neighbouring numbers, the 1 in front among them, that occur in the
  training reviews, numbered in sorted order from `words` + 1. A review's bigrams follow its words.
- Of a longer sequence the last `length` numbers are kept, and a shorter one is padded in front.

The files come sorted by class, so the training reviews are shuffled, always in the same way.
"""

from __future__ import annotations

import re
import tarfile
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np

from ..errors import DataError
from . import files
from .dataset import Dataset, Split
from .download import Official, file_name
from .files import DamagedFile
from .sources import IMDB

URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
OFFICIAL = Official(
    title="IMDB",
    folder="imdb",
    sha256={URL: "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"},
    megabytes=84,
    files=(file_name(URL),),  # not unpacked: 100,000 files
)
PARTS = ("train/neg", "train/pos", "test/neg", "test/pos")
FILTERS = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'  # of Keras' Tokenizer: the apostrophe stays
START, OTHER, FIRST = 1, 2, 3
SHUFFLE_SEED = 113
MAX_REVIEW_BYTES = 1_000_000  # some 150,000 words, as a long book has
MAX_REVIEWS = 125_000  # of each of PARTS: ten times the official 12,500
MAX_PART_BYTES = 250_000_000  # as many reviews of 2,000 bytes each
ARCHIVE = files.ArchiveBounds(
    packed=2 * 84_000_000,  # twice the official archive
    unpacked=12 * 84_000_000,  # gzip makes a text three or four times smaller
    member=MAX_REVIEW_BYTES,
    members=200_000,  # the official archive holds 100,000 reviews, labelled or not
)

Texts = dict[str, list[str]]
"""The reviews of each of PARTS, in the order of the files' names."""

_BLANKS = str.maketrans(FILTERS, " " * len(FILTERS))
_REVIEW = re.compile(r"aclImdb/(train|test)/(neg|pos)/[^/]+\.txt")


def load_directory(source: IMDB, directory: Path) -> Dataset:
    """The unpacked aclImdb; DataError names what is missing or is no text."""
    files.require_directory(directory)
    texts = {part: _read_part(directory / part) for part in PARTS}
    return from_texts(source, f"IMDB reviews in {directory}", texts)


def load_official(source: IMDB) -> Dataset:
    """IMDB's reviews from the cache, else downloaded; Unreachable where they cannot be."""

    def read(directory: Path) -> Dataset:
        return from_texts(source, "IMDB reviews", read_archive(directory / file_name(URL)))

    return OFFICIAL.load(read)


def from_texts(source: IMDB, name: str, texts: Texts) -> Dataset:
    numbers: defaultdict[str, int] = defaultdict(count().__next__)  # of words, as they come
    train = [_numbered(numbers, words(text)) for part in PARTS[:2] for text in texts[part]]
    test = [
        _numbered(numbers, [word for word in words(text) if word in numbers])
        for part in PARTS[2:]
        for text in texts[part]
    ]
    train_labels, test_labels = (
        np.repeat(np.array([0, 1], np.uint8), [len(texts[part]) for part in parts])
        for parts in (PARTS[:2], PARTS[2:])
    )
    order = np.random.default_rng(SHUFFLE_SEED).permutation(len(train))
    train = [train[i] for i in order]
    return from_numbers(source, name, train, train_labels[order], test, test_labels)


def words(text: str) -> list[str]:
    return text.lower().translate(_BLANKS).split()


def from_numbers(
    source: IMDB,
    name: str,
    train: Sequence[np.ndarray],
    train_labels: np.ndarray,
    test: Sequence[np.ndarray],
    test_labels: np.ndarray,
) -> Dataset:
    """train, test: of each review its words, as numbers from 0 in any order.

    inputs: (n, length) int32; labels: (n,) uint8, 0 for bad and 1 for good.
    """
    new = _by_frequency(train, test, source.words)
    splits = [[np.append(np.int32(START), new[old]) for old in part] for part in (train, test)]
    vocabulary = source.words
    if source.bigrams:
        known = _distinct(_all_pairs(splits[0]))
        vocabulary = source.words + 1 + len(known)
        splits = [_with_bigrams(part, known, source.words + 1) for part in splits]
    train_inputs, test_inputs = (padded(part, source.length) for part in splits)
    return Dataset(
        name,
        Split(train_inputs, train_labels),
        Split(test_inputs, test_labels),
        vocabulary=vocabulary,
    )


def padded(reviews: Sequence[np.ndarray], length: int) -> np.ndarray:
    """(n, length) int32: the last `length` numbers of each, with 0 in front of a shorter one."""
    rows = np.zeros((len(reviews), length), np.int32)
    for row, review in zip(rows, reviews, strict=True):
        kept = review[-length:]
        row[length - len(kept) :] = kept
    return rows


def _numbered(numbers: dict[str, int], found: list[str]) -> np.ndarray:
    return np.fromiter(map(numbers.__getitem__, found), np.int32, len(found))


def _by_frequency(
    train: Sequence[np.ndarray], test: Sequence[np.ndarray], limit: int
) -> np.ndarray:
    """The new number of each old one: below the limit, or OTHER."""
    highest = max(int(review.max(initial=0)) for review in (*train, *test))
    often = np.bincount(np.concatenate(train), minlength=highest + 1)
    new = np.empty(len(often), np.int32)
    new[np.argsort(-often, kind="stable")] = np.arange(FIRST, FIRST + len(often))
    new[new >= limit] = OTHER
    return new


def _all_pairs(reviews: Sequence[np.ndarray]) -> np.ndarray:
    """Neighbours as one number each, which sorts as the pair does, review by review."""
    return np.concatenate([r[:-1].astype(np.int64) << 32 | r[1:] for r in reviews])


def _distinct(values: np.ndarray) -> np.ndarray:
    """Sorted: as np.unique's, but of 6 million in 0.1 s instead of 3 s (NumPy 2.4)."""
    values = np.sort(values)
    return values[np.append(True, values[1:] != values[:-1])[: len(values)]]


def _with_bigrams(reviews: Sequence[np.ndarray], known: np.ndarray, first: int) -> list[np.ndarray]:
    """Behind each review's words the numbers of its pairs that are known."""
    numbers = _looked_up(_all_pairs(reviews), known, first)
    ends = np.cumsum([len(review) - 1 for review in reviews])
    parts = np.split(numbers, ends[:-1])
    return [np.append(review, part[part > 0]) for review, part in zip(reviews, parts, strict=True)]


def _looked_up(pairs: np.ndarray, known: np.ndarray, first: int) -> np.ndarray:
    """int32: the place in known, counted from first; 0 for a pair that is not there."""
    order = np.argsort(pairs)  # looked up in this order, each is near the one before: much faster
    in_order = pairs[order]
    places = np.searchsorted(known, in_order)
    found = np.append(known, -1)[places] == in_order
    numbers = np.empty(len(pairs), np.int32)
    numbers[order] = np.where(found, first + places, 0)
    return numbers


def _read_part(directory: Path) -> list[str]:
    texts = []
    size = 0
    for path in _review_paths(directory):
        raw = files.read(path, MAX_REVIEW_BYTES, "its directory still names it")
        size += len(raw)
        if size > MAX_PART_BYTES:
            raise DataError(
                f"{directory} is too large: it holds more than {MAX_PART_BYTES:,} bytes of reviews"
            )
        texts.append(_decoded(raw, path))
    return texts


def _review_paths(directory: Path) -> list[Path]:
    if not files.is_directory(directory):
        raise DataError(
            f"{directory} is missing: the directory must be the unpacked aclImdb, "
            f"with {', '.join(PARTS)}"
        )
    paths = sorted(directory.glob("*.txt"))
    if not paths:
        raise DataError(f"{directory} holds no review: they are files named *.txt")
    if len(paths) > MAX_REVIEWS:
        raise DataError(
            f"{directory} holds {len(paths):,} reviews, where at most {MAX_REVIEWS:,} are read"
        )
    return paths


def read_archive(path: Path) -> Texts:
    """Return the reviews in the official archive; DamagedFile where it is damaged or lacks them."""
    found: dict[str, dict[str, str]] = {part: {} for part in PARTS}
    for name, raw in files.read_archive(path, _is_review, ARCHIVE):
        _, split, label, file = name.split("/")
        found[f"{split}/{label}"][file] = _decoded(raw, path, name)
    for part, texts in found.items():
        if not texts:
            raise DamagedFile(path, f"is damaged: {part} holds no review")
    return {part: [texts[name] for name in sorted(texts)] for part, texts in found.items()}


def _is_review(member: tarfile.TarInfo) -> bool:
    return _REVIEW.fullmatch(member.name) is not None


def _decoded(raw: bytes, file: Path, review: str | None = None) -> str:
    """Return the text of a file, or of the review of that name in it."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        in_archive = f"is damaged: {review!r} in it " if review else ""
        raise DamagedFile(file, f"{in_archive}is not UTF-8 (at byte {error.start:,})") from None
