"""Test the synthetic pictures, reviews and text, and the inputs of the proof."""

from functools import partial

import numpy as np
import pytest

from crossbench import data
from crossbench.data import synthetic, synthetic_reviews, synthetic_text
from crossbench.data.dataset import Dataset, ExampleShapes
from crossbench.data.sources import IMDB, Synthetic, Text, TinyShakespeare
from crossbench.examples import load_examples
from crossbench.inputs.errors import DataError
from crossbench.models import SGD, Dense, Flatten, Model, SoftmaxCrossEntropy
from crossbench.spec import make_spec

REVIEWS = IMDB(words=2_000, length=200)
PIECES = Text(length=40, step=3)
LOSS = SoftmaxCrossEntropy()


def shapes(inputs, labels=(), vocabulary=None, classes=None):
    return ExampleShapes(inputs, labels, vocabulary, classes)


PICTURES = shapes((3, 32, 32), classes=10)


@pytest.mark.parametrize(
    ("load", "inputs", "labels"),
    [
        (synthetic.load_cifar10, ((3, 32, 32), np.uint8), ((), np.uint8)),
        (synthetic.load_mnist, ((1, 28, 28), np.uint8), ((), np.uint8)),
        (shapes((3, 16, 12), classes=4), ((3, 16, 12), np.uint8), ((), np.uint8)),
        (shapes((9,), (9,), 50, 50), ((9,), np.int32), ((9,), np.int32)),
        (shapes((2, 3, 4), (5,)), ((2, 3, 4), np.float32), ((5,), np.float32)),
        (partial(synthetic_reviews.load, REVIEWS), ((200,), np.int32), ((), np.uint8)),
    ],
)
def test_the_seed_decides_the_bytes(monkeypatch, load, inputs, labels):
    if isinstance(load, ExampleShapes):
        monkeypatch.setattr(synthetic, "counts", lambda _: (300, 100))
        load, counts = partial(synthetic.load, load), ()
    else:
        counts = (300, 100)
    first, again, other = (load(seed, *counts) for seed in (0, 0, 1))
    assert first.sha256() == again.sha256() != other.sha256()
    for split, number in ((first.train, 300), (first.test, 100)):
        assert (split.inputs.shape, split.inputs.dtype) == ((number, *inputs[0]), inputs[1])
        assert (split.labels.shape, split.labels.dtype) == ((number, *labels[0]), labels[1])
    assert (first.train.inputs[:100] != first.test.inputs).any()


def test_the_pictures_are_those_of_the_published_figures():
    """A value may differ by 1 where NumPy or the processor rounds differently."""
    dataset = synthetic.load_cifar10(0, 2_100, 100)
    assert dataset.train.labels[:8].tolist() == [0, 1, 5, 2, 4, 5, 0, 2]
    corners = dataset.train.inputs[[0, 999, 1_000, 2_099], :, 0, 31].astype(int)
    published = [[60, 100, 53], [103, 81, 89], [49, 26, 28], [210, 212, 235]]
    assert abs(corners - published).max() <= 1


def test_pictures_of_any_shape_show_their_class():
    for load in (synthetic.load_cifar10, synthetic.load_mnist):
        assert nearest_mean_accuracy(load(0, 2_000, 500)) > 0.15  # 0.1 is chance
    train, test = (
        synthetic.make_split(shapes((5, 64, 64), classes=4), n, np.random.default_rng(seed))
        for seed, n in ((0, 600), (1, 100))
    )
    assert nearest_mean_accuracy(Dataset("", train, test)) > 0.4  # 0.25 is chance
    assert set(train.labels) == set(test.labels) == set(range(4))


@pytest.mark.parametrize(
    ("counts", "sizes", "limits", "used"),
    [
        ((300, 120), (10,), (3, None), (30, 30)),
        ((300, 120), (10,), (None, 25), (20, 20)),
        ((300, 120), (70, 5), (2, 130), (70, 70)),
        ((300, 120), (160,), (1, None), (160, 120)),  # an epoch has no more batches
        ((16, 16), (9,), (1, None), (9, 16)),
        ((300, 120), (70,), (None, None), (300, 120)),
    ],
)
def test_of_few_batches_the_examples_are_those_of_all(monkeypatch, counts, sizes, limits, used):
    monkeypatch.setattr(synthetic, "counts", lambda _: counts)
    monkeypatch.setattr(synthetic, "CHUNK", 5)
    model = Model("m", (3, 32, 32), (Flatten(), Dense(4)), LOSS, SGD(0.1), 10, "this test")
    settings = make_spec("torch", model=model, data="synthetic").settings
    _, found, described = load_examples(model, settings, sizes, limits)
    whole = synthetic.load(model.example_shapes, 0)
    assert described.train_examples == counts[0]
    for split, all_of_it, number in zip(
        (found.train, found.test), (whole.train, whole.test), used, strict=True
    ):
        np.testing.assert_array_equal(split.inputs, all_of_it.inputs[:number])
        np.testing.assert_array_equal(split.labels, all_of_it.labels[:number])


def nearest_mean_accuracy(dataset):
    """Return the accuracy of the class with the nearest mean spectrum: a grating is a peak."""
    spectra = [
        abs(np.fft.rfft2(split.inputs.mean(1) - 127))[:, :8, :8]
        for split in (dataset.train, dataset.test)
    ]
    classes = range(int(dataset.train.labels.max()) + 1)
    means = np.array([spectra[0][dataset.train.labels == k].mean(0) for k in classes])
    distances = ((spectra[1][:, None] - means) ** 2).sum((2, 3))
    return (distances.argmin(1) == dataset.test.labels).mean()


@pytest.mark.parametrize(
    ("of_model", "expected"),
    [
        (shapes((3, 256, 256), classes=4), (1_024, 128)),
        (shapes((3, 32, 32), classes=10), (50_000, 8_192)),
        (shapes((3, 4096, 4096), classes=4), (16, 16)),
        (shapes((1_024,), (1_024,), 50_257, 50_257), (256, 32)),
        (shapes((100,), (), 50, 2), (2_621, 327)),
    ],
)
def test_there_are_fewer_of_large_examples(of_model, expected):
    assert synthetic.counts(of_model) == expected


def test_a_thousand_classes_have_labels_of_their_own():
    dataset = synthetic.load(shapes((1, 2, 2), classes=1_000), 0)
    assert dataset.name == "pictures of 2 × 2 by formula (seed 0)"
    labels = dataset.train.labels
    assert (labels.dtype, len(set(labels.tolist()))) == (np.int32, 1_000)


def test_examples_of_a_model_are_always_synthetic(tmp_path):
    of_model = shapes((3,), (2,))
    auto, named = (data.load(Synthetic(), where, 5, of_model) for where in ("auto", "synthetic"))
    assert auto.sha256() == named.sha256()
    assert auto.note is None
    with pytest.raises(DataError, match=f"^{tmp_path} cannot be used: .* synthetic.*name its data"):
        data.load(Synthetic(), str(tmp_path), 0, of_model)


def test_token_ids_follow_zipfs_law():
    of_model = shapes((500,), (500,), 1_000, 1_000)
    first = synthetic.load(of_model, 0)
    assert first.name == "token ids by Zipf's law (seed 0)"
    assert (len(first.train), len(first.test)) == (524, 65)
    np.testing.assert_array_equal(first.train.inputs[:, 1:], first.train.labels[:, :-1])
    seen = np.bincount(first.train.inputs.ravel(), minlength=1_000)
    assert len(seen) == 1_000
    for token_id in (1, 9, 99):  # drawn k + 1 times less often than 0
        assert seen[token_id] * (token_id + 1) == pytest.approx(seen[0], rel=0.2)


def test_sequences_of_a_class_have_a_most_frequent_id_of_their_own():
    split = synthetic.load(shapes((40,), (), 50, 3), 0).train
    assert split.inputs.max() < 50
    for label in range(3):
        assert np.bincount(split.inputs[split.labels == label].ravel()).argmax() == label


def test_normal_numbers_are_independent_and_normal():
    of_model = shapes((2, 3, 4), (5,))
    first = synthetic.load(of_model, 0)
    assert first.name == "normal numbers (seed 0)"
    assert first.vocabulary is None
    assert (len(first.train), len(first.test)) == (16_384, 1_024)
    columns = np.hstack([first.train.inputs.reshape(16_384, -1), first.train.labels])
    correlations = np.corrcoef(columns.T)
    np.testing.assert_allclose(columns.mean(0), 0, atol=0.04)  # five standard deviations
    np.testing.assert_allclose(columns.std(0), 1, atol=0.03)
    np.testing.assert_allclose(correlations, np.eye(29), atol=0.05)
    assert 0.04 < (abs(columns) > 2).mean() < 0.05  # 4.55 %


def test_numbers_of_a_class_have_their_own_mean_in_training_and_test():
    dataset = synthetic.load(shapes((8,), classes=3), 0)
    means = [dataset.train.inputs[dataset.train.labels == k].mean(0) for k in range(3)]
    distances = ((dataset.test.inputs[:, None] - np.array(means)) ** 2).sum(2)
    assert (distances.argmin(1) == dataset.test.labels).mean() > 0.8  # 0.33 is chance


def test_synthetic_reviews_get_ids_like_imdbs():
    first = synthetic_reviews.load(REVIEWS, 0, 300, 100)
    assert set(first.train.labels) == {0, 1}
    assert first.vocabulary == 2_000
    assert (first.train.inputs.min(), first.train.inputs.max()) == (0, 1_999)
    words = first.train.inputs[first.train.inputs >= 3]
    often = np.bincount(words, minlength=2_000)[3:]
    assert (np.diff(often[:100]) > 0).mean() < 0.5  # because the cut at `length` changes the order
    assert 5 < often[0] / often[9] < 20  # Zipf: 10


def test_a_linear_model_learns_the_reviews():
    dataset = synthetic_reviews.load(IMDB(words=2_000, length=400), 0, 3_000, 500)
    seen = [
        np.stack([np.bincount(ids, minlength=2_000)[3:] for ids in split.inputs])
        for split in (dataset.train, dataset.test)
    ]
    bad, good = (1 + seen[0][dataset.train.labels == k].sum(0) for k in (0, 1))
    score = np.log(good / good.sum()) - np.log(bad / bad.sum())
    accuracy = ((seen[1] @ score > 0) == dataset.test.labels).mean()
    assert 0.7 < accuracy < 0.99


@pytest.mark.parametrize("source", [PIECES, TinyShakespeare(length=4)])
def test_a_synthetic_text_is_cut_like_any_other(tmp_path, source):
    first, again, other = (synthetic_text.load(source, seed, 20_000) for seed in (0, 0, 1))
    assert first.sha256() == again.sha256() != other.sha256()
    file = tmp_path / "a.txt"
    file.write_text(synthetic_text.write(0, 20_000), encoding="utf-8")
    assert data.load(source, str(file), 0).sha256() == first.sha256()
    assert first.vocabulary == first.train.inputs.max() + 1


def test_a_synthetic_text_has_nietzsches_characters():
    text = synthetic_text.write(0)
    assert len(text) == 600_000
    assert len(set(text.lower())) == 57
    assert max(map(len, text.splitlines())) < 100


def test_the_next_character_of_a_text_can_be_learned():
    dataset = synthetic_text.load(PIECES, 0, 200_000)
    right = {}
    for context in (0, 1, 4):
        seen = {}
        for split in (dataset.train, dataset.test):
            keys = map(bytes, split.inputs[:, 40 - context :].astype(np.uint8))
            for key, label in zip(keys, split.labels.tolist(), strict=True):
                if split is dataset.train:
                    counts = seen.setdefault(key, {})
                    counts[label] = counts.get(label, 0) + 1
                else:
                    counts = seen.get(key, {0: 0})
                    right[context] = right.get(context, 0) + (max(counts, key=counts.get) == label)
    share = {context: n / len(dataset.test) for context, n in right.items()}
    assert share[0] + 0.1 < share[1]
    assert share[1] + 0.1 < share[4] < 0.95


def test_examples_of_pictures_are_those_of_the_published_deviations():
    inputs, labels = synthetic.make_examples(PICTURES, 20, np.random.default_rng([0, 64]))
    random = np.random.default_rng([0, 64])
    expected = random.integers(0, 10, 20)
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(inputs, synthetic.make_pictures(PICTURES, expected, random))
    assert 0 < inputs.min() < inputs.max() < 1
    for axis in (2, 3):  # no two neighbours are equal: a max-pool would have a tie
        assert (np.diff(inputs, axis=axis) == 0).mean() < 1e-5
