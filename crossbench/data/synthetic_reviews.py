"""Make synthetic reviews by a formula, in IMDB's shapes: for use if IMDB is not available.

Words are drawn by Zipf's law. One word in ten is negative and one in ten positive: a review often
replaces a word of the other sentiment by its opposite. Many words are followed by one of a few
successors, so that bigrams repeat.
"""

from __future__ import annotations

import numpy as np

from . import imdb
from .dataset import Dataset
from .sources import IMDB
from .synthetic import draw_zipf

REVIEWS = 25_000  # to train on, and as many to test on, as in IMDB
WORDS = 88_000  # in the vocabulary, about as many as in IMDB's training reviews
MEDIAN_WORDS, LOG_SPREAD = 174, 0.75  # of a review's length, which is log-normal
MIN_WORDS, MAX_WORDS = 10, 2_000  # of a review
NEUTRAL = 30  # the number of most frequent words, which have no sentiment
SWAP_PROBABILITY = 0.35  # of a word of the other sentiment: naive Bayes gets 89% right
SUCCESSOR_PROBABILITY, SUCCESSORS = 0.7, 3  # give 1.5 million bigrams of 20,000 words


def load(source: IMDB, seed: int, train: int = REVIEWS, test: int = REVIEWS) -> Dataset:
    """Return synthetic reviews as token ids, padded and with bigrams in the same way as IMDB."""
    train_random, test_random = np.random.default_rng([seed, 13]).spawn(2)
    train_labels, test_labels = (
        random.integers(0, 2, n, dtype=np.uint8)
        for random, n in ((train_random, train), (test_random, test))
    )
    return imdb.make_dataset_from_ids(
        source,
        f"synthetic reviews (seed {seed})",
        make_reviews(train_labels, train_random),
        train_labels,
        make_reviews(test_labels, test_random),
        test_labels,
    )


def make_reviews(labels: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Return the word ids of one review per label, from 0 for the most frequent word."""
    lengths = np.exp(random.normal(np.log(MEDIAN_WORDS), LOG_SPREAD, len(labels)))
    lengths = lengths.clip(MIN_WORDS, MAX_WORDS).astype(np.int64)
    words = _insert_successors(draw_zipf(WORDS, int(lengths.sum()), random), random)
    swapped = random.random(words.size, np.float32) < SWAP_PROBABILITY
    words = np.where(swapped, _swap_sentiment(words, np.repeat(labels, lengths)), words)
    return np.split(words, np.cumsum(lengths)[:-1])


def _insert_successors(words: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the words, where every second one is mostly replaced by a successor of the first."""
    before = words[:-1:2]
    which = random.integers(0, SUCCESSORS, before.size, np.int32)
    replaced = random.random(before.size, np.float32) < SUCCESSOR_PROBABILITY
    successors = (before // (which + 2) + 17 * which) % WORDS
    result = words.copy()
    result[1::2] = np.where(replaced, successors, result[1::2])
    return result


def _swap_sentiment(words: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the words, with each word of the other sentiment replaced by its opposite.

    Ids that end in 0 are negative and ids that end in 5 positive, and n and n + 5 are opposites.
    """
    last_digit = words % 10
    opposite = np.where(last_digit == 0, words + 5, words - 5)
    other_sentiment = (last_digit == np.where(labels == 1, 0, 5)) & (words >= NEUTRAL)
    return np.where(other_sentiment, opposite, words)
