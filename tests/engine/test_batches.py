import numpy as np

from crossbench.data import Split
from crossbench.data.sources import Augmentation
from crossbench.engine.batches import AugmentedBatches, array_batches, as_inputs

SHIFTED = Augmentation(shift=0.1, flip=True)


def pictures(n, side=20):
    random = np.random.default_rng(0)
    inputs = random.integers(0, 256, (n, 3, side, side), dtype=np.uint8)
    return Split(inputs, random.integers(0, 10, n, dtype=np.uint8))


def test_pictures_are_scaled_and_other_inputs_are_not():
    scaled = as_inputs(np.array([0, 51, 255], np.uint8))
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, [0, 0.2, 1])
    numbers = as_inputs(np.array([0, 20_000], np.int32))
    assert numbers.dtype == np.int32
    assert list(numbers) == [0, 20_000]


def test_an_epoch_takes_the_first_whole_batches_in_order():
    split = pictures(11)
    batches = array_batches(split, 3, 2)
    assert len(batches) == 2
    assert not batches.streamed
    first, second = batches
    np.testing.assert_array_equal(second.inputs, as_inputs(split.inputs[3:6]))
    np.testing.assert_array_equal(second.labels, split.labels[3:6])
    assert first.labels.dtype == np.int64
    assert first.masks is None


def test_targets_stay_numbers():
    targets = np.linspace(-1, 1, 22, dtype=np.float32).reshape(11, 2)
    batches = array_batches(Split(np.zeros((11, 5), np.float32), targets), 3, 2)
    assert batches.labels.dtype == np.float32
    assert batches.labels.flags.c_contiguous
    np.testing.assert_array_equal(batches.labels, targets[:6].reshape(2, 3, 2))


def test_augmented_batches_depend_on_seed_and_epoch_only():
    split = pictures(8)
    batches, others = (AugmentedBatches(split, 4, 2, SHIFTED, seed=0) for _ in range(2))
    assert batches.streamed
    assert len(batches) == 2

    def inputs_of(stream):
        return np.stack([batch.inputs for batch in stream])

    first = inputs_of(batches)
    assert (first.shape, first.dtype) == ((2, 4, 3, 20, 20), np.float32)
    np.testing.assert_array_equal(inputs_of(others), first)
    np.testing.assert_array_equal(inputs_of(batches), first)  # a second pass
    batches.epoch = 1
    assert (inputs_of(batches) != first).any()
    assert (inputs_of(AugmentedBatches(split, 4, 2, SHIFTED, seed=1)) != first).any()
    assert (first != as_inputs(split.inputs).reshape(first.shape)).any()
    labels = np.concatenate([batch.labels for batch in batches])
    np.testing.assert_array_equal(labels, split.labels)
