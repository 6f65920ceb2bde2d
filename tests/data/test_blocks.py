"""Test how a text is cut into blocks, and how blocks are drawn from it."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from crossbench import data
from crossbench.data import synthetic_text
from crossbench.data.augmentation import draw_blocks
from crossbench.data.sources import RandomPositions, TinyShakespeare
from crossbench.engine.batches import AugmentedBatches

SOURCE = TinyShakespeare(length=4)


@pytest.fixture
def text(tmp_path):
    """Write 100 characters in which no 5 in a row occur twice."""
    random = np.random.default_rng(0)
    path = tmp_path / "a.txt"
    path.write_text("".join(random.choice(list("abAB \n.9"), 100)))
    return path


def test_blocks_follow_one_another_and_each_character_is_labelled_with_the_next(text):
    dataset = data.load(SOURCE, str(text), 0)
    alphabet = sorted(set(text.read_text()))
    ids = [alphabet.index(character) for character in text.read_text()]
    assert dataset.vocabulary == len(alphabet) == 8  # capitals are characters of their own
    for split, part in ((dataset.train, ids[:90]), (dataset.test, ids[90:])):
        starts = range(0, len(part) - 4, 4)
        assert split.inputs.tolist() == [part[i : i + 4] for i in starts]
        assert split.labels.tolist() == [part[i + 1 : i + 5] for i in starts]
        assert split.inputs.dtype == split.labels.dtype == np.int32


def test_blocks_are_drawn_anywhere_and_by_the_seed_and_the_epoch(text):
    train = data.load(SOURCE, str(text), 0).train
    written = [*train.inputs.ravel(), train.labels[-1, -1]]
    windows = sliding_window_view(written, 5).tolist()

    def drawn(seed, epoch):
        batches = AugmentedBatches(train, 8, 20, RandomPositions(), seed)
        batches.epoch = epoch
        return np.concatenate([(batch.inputs, batch.labels) for batch in batches], axis=1)

    inputs, labels = drawn(0, 0)
    assert inputs.shape == labels.shape == (160, 4)
    np.testing.assert_array_equal(labels[:, :-1], inputs[:, 1:])
    starts = map(windows.index, np.column_stack([inputs, labels[:, -1]]).tolist())
    assert {start % 4 for start in starts} == {0, 1, 2, 3}
    np.testing.assert_array_equal(drawn(0, 0)[0], inputs)
    assert (drawn(0, 1)[0] != inputs).any()
    assert (drawn(1, 0)[0] != inputs).any()


def test_a_batch_may_have_more_blocks_than_the_text():
    train = synthetic_text.load(SOURCE, 0, 1_000).train
    assert len(train) < 1_000
    drawn = draw_blocks(train, 1_000, np.random.default_rng(0))
    assert drawn.inputs.shape == drawn.labels.shape == (1_000, 4)
