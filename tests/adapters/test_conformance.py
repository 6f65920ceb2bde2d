"""What every adapter must do, run over each of them (--adapters names others)."""

import numpy as np
import pytest

from crossbench.engine import parity
from crossbench.engine.worker import timed_epoch
from crossbench.results.records import FLOAT32_BOUND, FLOAT64_BOUND, worst
from crossbench.workload import Batches, Job

THREADS = 2  # of every job here; Julia starts with as many


@pytest.fixture
def random():
    return np.random.default_rng(0)


def ready(adapter, model, random, dtype="float32", steps=3, batch=4):
    """A workload with weights and data, and the data."""
    workload = adapter.build(Job(model, "cpu", THREADS, dtype))
    workload.load_weights({k: v.astype(dtype) for k, v in model.initial_weights(0).items()})
    inputs = random.random((steps, batch, *model.input_shape)).astype(dtype)
    batches = Batches(inputs, random.integers(0, 10, (steps, batch)))
    workload.place(batches)
    return workload, batches


@pytest.mark.parametrize("model_name", ["lenet", "small_model"])
def test_it_agrees_with_the_reference(adapter, model_name, request):
    model = request.getfixturevalue(model_name)
    expected = parity.reference(model)
    proof = parity.prove(adapter.build, Job(model, "cpu", THREADS, "float32"), expected)
    assert proof.agrees, proof.disagreement
    assert worst(proof.float64)[1] < FLOAT64_BOUND
    assert 0 < worst(proof.float32)[1] < FLOAT32_BOUND  # 0 would be float64 in disguise
    # logits, loss, losses, and a gradient and a weight for each parameter
    assert len(proof.float64) == 3 + 2 * len(model.parameters)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_come_back_as_they_went_in(adapter, small_model, random, dtype):
    workload = adapter.build(Job(small_model, "cpu", THREADS, dtype))
    shapes = {name: parameter.shape for name, parameter in small_model.parameters.items()}
    weights = {name: random.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    workload.load_weights(weights)
    back = workload.weights()
    assert back.keys() == weights.keys()
    for name in weights:
        assert back[name].dtype == dtype
        np.testing.assert_array_equal(back[name], weights[name])


def test_training_again_from_the_same_weights_is_the_same(adapter, small_model, random):
    workload, _ = ready(adapter, small_model, random)
    first = workload.train_epoch()
    workload.load_weights(small_model.initial_weights(0))
    again = workload.train_epoch()  # with the momentum of before, the second step would differ
    np.testing.assert_allclose(again, first, rtol=1e-5)
    further = workload.train_epoch()
    assert (further != again).any()


def test_gradients_and_predictions_change_no_weight(adapter, small_model, random):
    workload, batches = ready(adapter, small_model, random)
    before = workload.weights()
    workload.loss_and_gradients(batches.inputs[0], batches.labels[0])
    workload.predict(batches.inputs[0])
    after = workload.weights()
    assert all((before[name] == after[name]).all() for name in before)


def test_weights_and_gradients_are_copies(adapter, small_model, random):
    workload, batches = ready(adapter, small_model, random)
    weights = workload.weights()
    kept = {name: array.copy() for name, array in weights.items()}
    _, gradients = workload.loss_and_gradients(batches.inputs[0], batches.labels[0])
    kept_gradients = {name: array.copy() for name, array in gradients.items()}
    workload.train_epoch()
    for name in kept:
        np.testing.assert_array_equal(weights[name], kept[name])
        np.testing.assert_array_equal(gradients[name], kept_gradients[name])


def test_placed_data_is_the_workloads_own(adapter, small_model, random):
    """The caller may let go of its arrays: what is read afterwards must not be theirs."""
    if adapter.title == "NumPy reference":
        pytest.skip("the reference keeps the caller's arrays, which live as long")
    workload, batches = ready(adapter, small_model, random)
    expected = workload.train_epoch()
    workload.load_weights(small_model.initial_weights(0))
    del batches
    junk = [np.full((3, 4, 3, 32, 32), np.nan, np.float32) for _ in range(20)]  # over their memory
    np.testing.assert_allclose(workload.train_epoch(), expected, rtol=1e-5)
    assert len(junk) == 20


def test_predict_takes_any_number_of_images(adapter, small_model, random):
    workload, batches = ready(adapter, small_model, random)
    whole = workload.predict(batches.inputs[0])
    assert whole.shape == (4, 10)
    np.testing.assert_allclose(workload.predict(batches.inputs[0, :1]), whole[:1], rtol=1e-4)


def test_an_epoch_is_timed_and_its_losses_kept(adapter, small_model, random):
    workload, batches = ready(adapter, small_model, random)
    loss, _ = workload.loss_and_gradients(batches.inputs[0], batches.labels[0])
    epoch = timed_epoch(workload, "cpu", 1, 0)
    assert epoch.wall_seconds > 0
    assert len(epoch.losses) == 3
    assert epoch.losses[0] == pytest.approx(loss, rel=1e-5)


def test_a_loss_that_is_not_finite_is_kept_as_none(adapter, small_model, random):
    workload, batches = ready(adapter, small_model, random)
    workload.place(Batches(batches.inputs * np.float32(np.nan), batches.labels))
    assert timed_epoch(workload, "cpu", 1, 0).losses == [None, None, None]


def test_what_an_epoch_allocates(adapter, small_model, random):
    workload, _ = ready(adapter, small_model, random, steps=3)
    workload.train_epoch()
    three = workload.allocated()
    if three is None:
        pytest.skip(f"{adapter.title} does not tell")
    workload, _ = ready(adapter, small_model, random, steps=6)
    workload.train_epoch()
    assert three > 4 * 3 * 32 * 32  # bytes: more than one picture
    assert workload.allocated() == pytest.approx(2 * three, rel=0.2)


def test_the_peaks_work_returns_nothing_and_can_be_called_again(adapter, small_model):
    workload = adapter.build(Job(small_model, "cpu", THREADS, "float32"))
    for work in (workload.matrix_product(16), workload.copy(4096)):
        work()
        work()


def test_details_are_words(adapter, small_model, random):
    workload, _ = ready(adapter, small_model, random)
    details = workload.details()
    assert details
    assert all(type(k) is str and type(v) is str for k, v in details.items())
    assert workload.peak_memory() is None  # on the CPU
    workload.train_epoch()
    assert all(type(v) is float and v >= 0 for v in workload.epoch_figures().values())
    assert workload.threads() in (None, THREADS)
    assert adapter.installed()


def test_a_layer_that_it_does_not_know_is_named(adapter, small_model):
    import dataclasses

    from crossbench.models.layers import Layer

    @dataclasses.dataclass(frozen=True)
    class Wavelet(Layer):
        pass

    model = dataclasses.replace(small_model, layers=(Wavelet(), *small_model.layers))
    with pytest.raises(Exception, match="Wavelet"):
        parity.observe(adapter.build, Job(model, "cpu", THREADS, "float32"))
