"""Read IMDB's film reviews (https://ai.stanford.edu/~amaas/data/sentiment/, Maas et al., 2011).

There are 25,000 to train on and 25,000 to test on, one text file each, in train/pos, train/neg,
test/pos and test/neg. The archive's SHA-256 is that of TensorFlow Datasets (tensorflow/datasets,
tensorflow_datasets/url_checksums/imdb_reviews.txt).

Reviews become token ids as in Keras, but from the reviews' own text (keras-team/keras 2:
keras/datasets/imdb.py, keras/preprocessing/text.py, examples/imdb_fasttext.py):

- A review is converted to lower case, each character of FILTERS becomes a blank, and the text is
  split at white space: `it's` is one word, and `<br />` gives the word `br`.
- Ids are given by a word's frequency in the training reviews, the most frequent first; equally
  frequent words in the order of their first occurrence. 0 pads, 1 starts a review, 2 replaces all
  words whose id would be `words` or more, and words begin at 3. (Keras' own files count words from
  1 before they add 3, so there the most frequent one is 4.) A test review's words that are in no
  training review are left out.
- Bigrams are the pairs of neighbouring ids (the leading 1 included) that occur in the training
  reviews; their own ids are given in sorted order from `words` + 1. They follow a review's words.
- A longer sequence is cut to its last `length` ids, and a shorter one is padded in front.

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

from ..inputs.errors import DataError
from . import files
from .dataset import Dataset, Split
from .download import OfficialFiles, file_name
from .sources import IMDB

URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
OFFICIAL_FILES = OfficialFiles(
    title="IMDB",
    folder="imdb",
    sha256={URL: "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"},
    megabytes=84,  # kept packed, because it holds 100,000 files
)
REVIEW_FOLDERS = ("train/neg", "train/pos", "test/neg", "test/pos")
FORMS = files.Forms(
    title="IMDB reviews",
    takes=(
        "--data takes auto, synthetic, or IMDB's reviews: the folder aclImdb, a folder above it, "
        "or the .tar.gz"
    ),
    folders=(REVIEW_FOLDERS,),
    packed=(file_name(URL),),
    magic=files.GZIP,
)
FILTERS = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'  # of Keras' Tokenizer, which keeps the apostrophe
START, OUT_OF_VOCABULARY, FIRST_WORD = 1, 2, 3
SHUFFLE_SEED = 113
MAX_REVIEW_BYTES = 1_000_000  # some 150,000 words, the length of a long book
MAX_BYTES = 1_000_000_000  # of all reviews: fifteen times the official ones
ARCHIVE = files.ArchiveBounds(
    packed=2 * 84_000_000,  # twice the official archive
    unpacked=12 * 84_000_000,  # gzip compresses text by a factor of three or four
    member=MAX_REVIEW_BYTES,
    members=200_000,  # the official archive holds 100,000 reviews, labelled or not
)

Texts = dict[str, list[str]]
"""The reviews in each of REVIEW_FOLDERS, sorted by their files' names."""

_BLANKS = str.maketrans(FILTERS, " " * len(FILTERS))
_REVIEW = re.compile(r"aclImdb/(train|test)/(neg|pos)/[^/]+\.txt")


def load_path(source: IMDB, path: Path) -> Dataset:
    """Load the reviews from what a user has: the unpacked aclImdb, a folder above it, or the
    archive. Raise DataError, naming it, for a missing, damaged or unreadable file.
    """
    found, is_folder = FORMS.find(path)
    texts = _read_folders(found) if is_folder else _read_archive(found)
    return make_dataset(source, f"{FORMS.title} in {found}", texts)


def make_dataset(source: IMDB, name: str, texts: Texts) -> Dataset:
    """Return the data set of these reviews, the training reviews shuffled."""
    word_ids: defaultdict[str, int] = defaultdict(count().__next__)  # by first occurrence, from 0
    train_folders, test_folders = REVIEW_FOLDERS[:2], REVIEW_FOLDERS[2:]
    train = [
        _encode(word_ids, split_words(text)) for folder in train_folders for text in texts[folder]
    ]
    test = [
        _encode(word_ids, [word for word in split_words(text) if word in word_ids])
        for folder in test_folders
        for text in texts[folder]
    ]
    train_labels, test_labels = (
        np.repeat(np.array([0, 1], np.uint8), [len(texts[folder]) for folder in folders])
        for folders in (train_folders, test_folders)
    )
    order = np.random.default_rng(SHUFFLE_SEED).permutation(len(train))
    train = [train[i] for i in order]
    return make_dataset_from_ids(source, name, train, train_labels[order], test, test_labels)


def split_words(text: str) -> list[str]:
    """Return the words of the text in lower case, without the characters of FILTERS."""
    return text.lower().translate(_BLANKS).split()


def make_dataset_from_ids(
    source: IMDB,
    name: str,
    train: Sequence[np.ndarray],
    train_labels: np.ndarray,
    test: Sequence[np.ndarray],
    test_labels: np.ndarray,
) -> Dataset:
    """Return the data set of reviews whose words are already ids, from 0 in any order.

    train, test: one array of ids per review. Its inputs are (n, length) int32, its labels (n,)
    uint8, 0 for negative and 1 for positive.
    """
    token_ids = _rank_by_frequency(train, test, source.words)
    splits = [
        [np.append(np.int32(START), token_ids[review]) for review in reviews]
        for reviews in (train, test)
    ]
    vocabulary = source.words
    if source.bigrams:
        known_pairs = _sorted_unique(_neighbour_pairs(splits[0]))
        vocabulary = source.words + 1 + len(known_pairs)
        splits = [_append_bigrams(reviews, known_pairs, source.words + 1) for reviews in splits]
    train_inputs, test_inputs = (pad(reviews, source.length) for reviews in splits)
    return Dataset(
        name,
        Split(train_inputs, train_labels),
        Split(test_inputs, test_labels),
        vocabulary=vocabulary,
    )


def pad(reviews: Sequence[np.ndarray], length: int) -> np.ndarray:
    """Return (n, length) int32: the last `length` ids of each review, padded in front with 0."""
    rows = np.zeros((len(reviews), length), np.int32)
    for row, review in zip(rows, reviews, strict=True):
        kept = review[-length:]
        row[length - len(kept) :] = kept
    return rows


def _encode(word_ids: dict[str, int], words: list[str]) -> np.ndarray:
    return np.fromiter(map(word_ids.__getitem__, words), np.int32, len(words))


def _rank_by_frequency(
    train: Sequence[np.ndarray], test: Sequence[np.ndarray], limit: int
) -> np.ndarray:
    """Return each word id's token id: its rank, or OUT_OF_VOCABULARY from the limit on."""
    highest = max(int(review.max(initial=0)) for review in (*train, *test))
    counts = np.bincount(np.concatenate(train), minlength=highest + 1)
    token_ids = np.empty(len(counts), np.int32)
    ranks = np.arange(FIRST_WORD, FIRST_WORD + len(counts))
    token_ids[np.argsort(-counts, kind="stable")] = ranks
    token_ids[token_ids >= limit] = OUT_OF_VOCABULARY
    return token_ids


def _neighbour_pairs(reviews: Sequence[np.ndarray]) -> np.ndarray:
    """Return the pairs of neighbouring ids of all reviews, each as one int64 that sorts alike."""
    return np.concatenate([r[:-1].astype(np.int64) << 32 | r[1:] for r in reviews])


def _sorted_unique(values: np.ndarray) -> np.ndarray:
    """Return what np.unique returns, but for 6 million in 0.1 s instead of 3 s (NumPy 2.4)."""
    values = np.sort(values)
    return values[np.append(True, values[1:] != values[:-1])[: len(values)]]


def _append_bigrams(
    reviews: Sequence[np.ndarray], known_pairs: np.ndarray, first_id: int
) -> list[np.ndarray]:
    """Return each review's ids followed by the ids of those of its pairs that are known."""
    bigram_ids = _look_up(_neighbour_pairs(reviews), known_pairs, first_id)
    ends = np.cumsum([len(review) - 1 for review in reviews])
    parts = np.split(bigram_ids, ends[:-1])
    return [np.append(review, part[part > 0]) for review, part in zip(reviews, parts, strict=True)]


def _look_up(pairs: np.ndarray, known_pairs: np.ndarray, first_id: int) -> np.ndarray:
    """Return int32 ids: first_id + the pair's index in known_pairs, or 0 if it is not known."""
    order = np.argsort(pairs)  # because searchsorted is much faster for sorted values
    sorted_pairs = pairs[order]
    indices = np.searchsorted(known_pairs, sorted_pairs)
    found = np.append(known_pairs, -1)[indices] == sorted_pairs
    ids = np.empty(len(pairs), np.int32)
    ids[order] = np.where(found, first_id + indices, 0)
    return ids


def _read_folders(directory: Path) -> Texts:
    """Return the reviews in the unpacked archive; raise DataError if some are missing or unusable,
    or together too large.
    """
    texts: Texts = {}
    left = MAX_BYTES
    for name in REVIEW_FOLDERS:
        folder = directory / name
        if not files.is_directory(folder):
            raise DataError(
                f"{folder} is missing: the directory must be the unpacked aclImdb, "
                f"with {', '.join(REVIEW_FOLDERS)}"
            )
        texts[name] = []
        for path in sorted(folder.glob("*.txt")):
            raw = files.read(path, MAX_REVIEW_BYTES, "its directory still names it")
            left -= len(raw)
            if left < 0:
                raise DataError(
                    f"{folder} is too large: with it there are more than "
                    f"{MAX_BYTES:,} bytes of reviews"
                )
            texts[name].append(_decode(raw, path))
        if not texts[name]:
            raise DataError(f"{folder} holds no reviews: they are files named *.txt")
    return texts


def _read_archive(path: Path) -> Texts:
    """Return the reviews in the archive; raise DataError if it is damaged."""
    found: dict[str, dict[str, str]] = {folder: {} for folder in REVIEW_FOLDERS}
    for name, raw in files.read_archive(path, _is_review, ARCHIVE):
        _, split, label, file = name.split("/")
        found[f"{split}/{label}"][file] = _decode(raw, path, name)
    for folder, texts in found.items():
        if not texts:
            raise DataError(f"{path} is damaged: {folder} holds no reviews")
    return {folder: [texts[name] for name in sorted(texts)] for folder, texts in found.items()}


def _is_review(member: tarfile.TarInfo) -> bool:
    return _REVIEW.fullmatch(member.name) is not None


def _decode(raw: bytes, file: Path, review: str | None = None) -> str:
    """Decode a review's UTF-8; raise DataError if it is not.

    file: the review's file, or the archive that holds the review of that name.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        in_archive = f"is damaged: {review!r} in it " if review else ""
        raise DataError(f"{file} {in_archive}is not UTF-8 (at byte {error.start:,})") from None
