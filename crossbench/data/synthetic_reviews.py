"""Reviews made by a formula, in the shapes of IMDB's: for where those cannot be had.

Words are drawn by Zipf's law. One in ten leans to the bad reviews and one in ten to the good ones:
where a review holds the other side's word, it often says its opposite instead. Many a word is
followed by one of its few companions, so that bigrams come again.
"""

from __future__ import annotations

import numpy as np

from . import imdb
from .dataset import Dataset
from .sources import IMDB

REVIEWS = 25_000  # to train on, and as many to test on, as IMDB has
WORDS = 88_000  # about as many as IMDB's training reviews have
MEDIAN, SPREAD = 174, 0.75  # words of a review, log-normal
SHORTEST, LONGEST = 10, 2_000
PLAIN = 30  # the most frequent words, which lean to no side
SWAPPED = 0.35  # of the words that lean to the other side: naive Bayes gets 89% right
FOLLOWED, COMPANIONS = 0.7, 3  # so that bigrams come again: 1.5 million of 20,000 words


def load(source: IMDB, seed: int, train: int = REVIEWS, test: int = REVIEWS) -> Dataset:
    """IMDB's stand-in of that seed, numbered, padded and with bigrams as IMDB itself."""
    train_random, test_random = np.random.default_rng([seed, 13]).spawn(2)
    train_labels, test_labels = (
        random.integers(0, 2, n, dtype=np.uint8)
        for random, n in ((train_random, train), (test_random, test))
    )
    return imdb.from_numbers(
        source,
        f"synthetic reviews (seed {seed})",
        reviews(train_labels, train_random),
        train_labels,
        reviews(test_labels, test_random),
        test_labels,
    )


def reviews(labels: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """The words of one review a label, as numbers from 0, the most frequent first."""
    lengths = np.exp(random.normal(np.log(MEDIAN), SPREAD, len(labels)))
    lengths = lengths.clip(SHORTEST, LONGEST).astype(np.int64)
    words = _followed(_zipf(int(lengths.sum()), random), random)
    swapped = random.random(words.size, np.float32) < SWAPPED
    words = np.where(swapped, _leaning(words, np.repeat(labels, lengths)), words)
    return np.split(words, np.cumsum(lengths)[:-1])


def _zipf(n: int, random: np.random.Generator) -> np.ndarray:
    """That many words, of which the k-th is 1/k as frequent as the first."""
    share = np.cumsum(1 / np.arange(1, WORDS + 1))
    return np.searchsorted(share, random.random(n) * share[-1]).astype(np.int32)


def _followed(words: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Most of every second word gives way to a companion of the word before it."""
    before = words[:-1:2]
    which = random.integers(0, COMPANIONS, before.size, np.int32)
    gives_way = random.random(before.size, np.float32) < FOLLOWED
    companions = (before // (which + 2) + 17 * which) % WORDS
    followed = words.copy()
    followed[1::2] = np.where(gives_way, companions, followed[1::2])
    return followed


def _leaning(words: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The words, but for those of the other side their opposite: of ten, word 0 and word 5."""
    place = words % 10
    opposite = np.where(place == 0, words + 5, words - 5)
    other_side = (place == np.where(labels == 1, 0, 5)) & (words >= PLAIN)
    return np.where(other_side, opposite, words)
