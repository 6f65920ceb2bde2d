"""What every adapter must do, run over each of them: --adapters names others, --devices cpu,gpu
runs them on a GPU too.
"""

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest
from small_models import DROPPED, SMALL_MODELS, make_inputs, make_labels

from crossbench.adapters.reference import ReferenceWorkload
from crossbench.engine import parity, peak
from crossbench.engine.batches import ArrayBatches, BatchList, StreamedBatches, draw_masks
from crossbench.engine.peak import PeakWork
from crossbench.engine.tasks import TrainingTask
from crossbench.engine.timing import finite_or_none, timed_epoch
from crossbench.models import LSTM, Dense, GivenGradient, Layer, OneHot
from crossbench.results.parity import FLOAT64_BOUND, FULL_FLOAT32_BOUND, worst
from crossbench.workload import Batch, Job

PEAK_WORK = {"cpu": PeakWork(1024, 2**27, 0.0), "gpu": PeakWork(8192, 2**27, 0.0)}
pytestmark = pytest.mark.short(model_name=("residual", "speaking"), adapter_name=("torch", "jax"))
IN_TORCH = pytest.mark.short(adapter_name=("torch",))
VARIED = ("residual", "dropped", "bidirectional", "speaking")
"""With batch norms, dropouts, a recurrent layer and attention: what holds for these models does not
depend on the layers, losses and optimizers that only others have.
"""
THREADS = 2  # of every job here; Julia starts with as many


@pytest.fixture
def random():
    return np.random.default_rng(0)


def ready(adapter, device, model, random, dtype="float32", steps=3, batch=4):
    """A workload with weights and data, and the data."""
    workload = adapter.build(Job(model, device, THREADS, dtype))
    workload.load_weights({k: v.astype(dtype) for k, v in model.initial_weights(0).items()})
    inputs = make_inputs(model, (steps, batch), random, dtype)
    batches = ArrayBatches(inputs, make_labels(model, (steps, batch), random, dtype))
    workload.place(batches)
    return workload, batches


def with_masks(model, batches, random):
    """The same batches with dropout masks, where the model has dropouts."""
    masks = draw_masks(model, len(batches), batches.batch_size, random)
    return replace(batches, masks=masks or None)


def first_of(batches):
    return next(iter(batches))


def assert_close(found, expected):
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("model_name", ["lenet", *SMALL_MODELS])
def test_it_agrees_with_the_reference(adapter, device, model_name, lenet, expected):
    """With steps of the whole learning rate, as the small models are not deep, and its dropouts."""
    model = lenet if model_name == "lenet" else SMALL_MODELS[model_name]
    optimizer = model.optimizer.with_scaled_learning_rate(1 / parity.LEARNING_RATE_SCALE)
    whole = replace(model, optimizer=optimizer)
    job = Job(whole, device, THREADS, "float32")
    proof = parity.prove(adapter.build, job, expected(whole))
    assert proof.agrees, proof.disagreement
    assert worst(proof.float64)[1] < FLOAT64_BOUND
    assert worst(proof.float32)[1] > 1e-8  # less would be float64 in disguise
    # logits (of all examples, of an epoch and of single batches), loss, a gradient for each trained
    # parameter, and from either start the losses and each parameter after the steps
    trained = [p for p in model.parameters.values() if p.trained]
    assert len(proof.float64) == 4 + len(trained) + 2 * (1 + len(model.parameters))


def test_an_lstm_with_both_biases_agrees_or_is_refused(adapter, device, expected):
    """They add up: an LSTM of Keras or Flux has one."""
    layers = (OneHot(11), LSTM(6, bidirectional=True, both_biases=True), Dense(11))
    model = replace(SMALL_MODELS["lettered"], name="biased", layers=layers)
    job = Job(model, device, THREADS, "float32")
    try:
        proof = parity.prove(adapter.build, job, expected(model))
    except NotImplementedError as refusal:
        pytest.skip(str(refusal))
    assert proof.agrees, proof.disagreement


@IN_TORCH
def test_one_convolution_and_one_product_are_full_float32(adapter, device):
    """Not TensorFloat-32: the proof asks for it on a GPU, where it is the default of some."""
    found = parity.single_deviations(adapter.build, Job(None, device, THREADS, "float32"))
    assert set(found) == {"convolution", "matrix multiplication"}
    assert max(found.values()) < FULL_FLOAT32_BOUND
    assert min(found.values()) > 1e-9  # float64 in disguise would be nearer


@IN_TORCH
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model_name", SMALL_MODELS)
def test_weights_come_back_as_they_went_in(adapter, device, model_name, random, dtype):
    model = SMALL_MODELS[model_name]
    workload = adapter.build(Job(model, device, THREADS, dtype))
    shapes = {name: parameter.shape for name, parameter in model.parameters.items()}
    weights = {name: random.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    workload.load_weights(weights)
    back = workload.weights()
    assert back.keys() == weights.keys()
    for name in weights:
        assert back[name].dtype == dtype
        np.testing.assert_array_equal(back[name], weights[name])


@pytest.mark.parametrize("model_name", VARIED)
def test_training_again_from_the_same_weights_is_the_same(adapter, device, model_name, random):
    """The optimizer's state, the running statistics and the dropouts' draws too."""
    model = SMALL_MODELS[model_name]
    workload, batches = ready(adapter, device, model, random)
    first = workload.train_epoch()
    workload.load_weights(model.initial_weights(0))
    again = workload.train_epoch()  # with the momentum of before, the second step would differ
    np.testing.assert_allclose(again, first, rtol=1e-5)
    further = workload.train_epoch()
    assert (further != again).any()
    workload.load_weights(model.initial_weights(0))
    in_pieces = []
    for piece in (slice(2), slice(2, None)):
        workload.place(BatchList(list(batches)[piece], batches.streamed))
        in_pieces += list(workload.train_epoch())
    np.testing.assert_allclose(in_pieces, first, rtol=1e-5)  # other batches change nothing


@IN_TORCH
@pytest.mark.parametrize("model_name", VARIED)
def test_gradients_and_predictions_change_nothing(adapter, device, model_name, random):
    """Neither the weights and running statistics, nor what the training then does."""
    model = SMALL_MODELS[model_name]
    workload, batches = ready(adapter, device, model, random)
    expected = workload.train_epoch()
    workload.load_weights(model.initial_weights(0))
    before = workload.weights()
    workload.loss_and_gradients(first_of(batches))
    logits = workload.predict(batches.inputs[0])
    assert logits.shape == (4, *model.output_shape)
    assert_close(workload.predict(batches.inputs[0, :1]), logits[:1])  # any number of examples
    after = workload.weights()
    assert all((before[name] == after[name]).all() for name in before)
    np.testing.assert_allclose(workload.train_epoch(), expected, rtol=1e-5)


def reference(model):
    """Return the reference's workload with initial weights."""
    workload = ReferenceWorkload(Job(model, "cpu", 1, "float64"))
    workload.load_weights({k: v.astype("float64") for k, v in model.initial_weights(0).items()})
    return workload


def by_the_reference(model, batches):
    """Return the losses and the weights after an epoch."""
    workload = reference(model)
    workload.place(batches)
    return workload.train_epoch(), workload.weights()


@IN_TORCH
@pytest.mark.parametrize("model_name", VARIED)
def test_batches_that_are_larger_than_the_proofs(adapter, device, model_name, random):
    """With given dropout masks."""
    model = SMALL_MODELS[model_name]
    workload, batches = ready(
        adapter, device, model, random, "float64", batch=parity.BATCH_SIZE + 37
    )
    masked = with_masks(model, batches, random)
    workload.place(masked)
    losses, _ = by_the_reference(model, masked)
    np.testing.assert_allclose(workload.train_epoch(), losses, rtol=1e-9)


def assert_near(found, expected):
    assert found.keys() == expected.keys()
    largest = max(np.linalg.norm(array) for array in expected.values())
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-9 * largest, err_msg=name)


def check_backward_epoch(adapter, device, model, random, streamed=False):
    """Check that it returns the gradients of the last batch, and changes no parameter."""
    workload, batches = ready(adapter, device, model, random, "float64", batch=70)
    masked = with_masks(model, batches, random)
    if streamed:
        masked = StreamedBatches(masked.inputs, masked.labels, masked.masks)
    workload.place(masked)
    before = workload.weights()
    gradients = workload.backward_epoch()()
    assert_near(gradients, reference(model).loss_and_gradients(list(masked)[-1])[1])
    after = workload.weights()
    assert all((before[name] == after[name]).all() for name in gradients)


def test_a_streamed_backward_epoch_trains_nothing(adapter, device, random):
    check_backward_epoch(adapter, device, DROPPED, random, streamed=True)


@IN_TORCH
@pytest.mark.parametrize("model_name", VARIED)
def test_a_given_gradient_of_the_output_is_pulled_back(adapter, device, model_name, random):
    """From the middle of a model, whatever shape its output has there."""
    whole = SMALL_MODELS[model_name]
    end = 1 + len(whole.layers) // 2
    while not any(named.parameters for named in islice(whole.named_layers(), end)):
        end += 1
    model = replace(whole, layers=whole.layers[:end], loss=GivenGradient())
    check_backward_epoch(adapter, device, model, random)


@pytest.mark.parametrize("model_name", ["averaged", "gated"])
def test_rows_of_an_embedding_without_examples(adapter, device, model_name, random):
    """Once used, a row moves on with the optimizer's state; the last one is never used."""
    model = SMALL_MODELS[model_name]
    workload, batches = ready(adapter, device, model, random, "float64")
    inputs = batches.inputs % 24
    inputs[1:] += 24
    batches = replace(batches, inputs=inputs)
    workload.place(batches)
    losses, weights = by_the_reference(model, batches)
    np.testing.assert_allclose(workload.train_epoch(), losses, rtol=1e-9)
    start, after = model.initial_weights(0), workload.weights()
    for name, expected in weights.items():
        moved = np.abs(expected - start[name]).max()
        np.testing.assert_allclose(after[name], expected, rtol=0, atol=1e-9 * moved)
    (table,) = [name for name in weights if name.startswith("embedding")]
    assert (after[table][49] == start[table][49]).all()


class Streamed(StreamedBatches):
    """The same batches, each in memory that nobody else keeps."""

    def __iter__(self):
        for inputs, labels in zip(self.inputs, self.labels, strict=True):
            yield Batch(inputs.copy(), labels)


def test_streamed_batches_train_as_placed_ones(adapter, device, small_model, random):
    workload, batches = ready(adapter, device, small_model, random)
    expected = workload.train_epoch()
    trained = workload.weights()
    workload.load_weights(small_model.initial_weights(0))
    workload.place(Streamed(batches.inputs, batches.labels))
    _, losses = timed_epoch(TrainingTask(workload), None, 1, 0)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for name, array in workload.weights().items():
        np.testing.assert_allclose(array, trained[name], rtol=1e-4, atol=1e-6)
    again = workload.train_epoch()  # the stream can be gone through again
    assert len(again) == 3
    assert (again != expected).any()


@IN_TORCH
def test_weights_and_gradients_are_copies(adapter, device, small_model, random):
    workload, batches = ready(adapter, device, small_model, random)
    given = small_model.initial_weights(0)
    workload.load_weights(given)
    weights = workload.weights()
    kept = {name: array.copy() for name, array in weights.items()}
    _, gradients = workload.loss_and_gradients(first_of(batches))
    kept_gradients = {name: array.copy() for name, array in gradients.items()}
    workload.train_epoch()
    for name in kept:
        np.testing.assert_array_equal(weights[name], kept[name])
        np.testing.assert_array_equal(gradients[name], kept_gradients[name])
        np.testing.assert_array_equal(given[name], kept[name])


@IN_TORCH
def test_placed_data_is_the_workloads_own(adapter, device, small_model, random):
    """The caller may let go of its arrays: what is read afterwards must not be theirs."""
    if adapter.title == "NumPy reference":
        pytest.skip("the reference keeps the caller's arrays, which live as long")
    workload, batches = ready(adapter, device, small_model, random)
    expected = workload.train_epoch()
    workload.load_weights(small_model.initial_weights(0))
    del batches
    junk = [np.full((3, 4, 3, 32, 32), np.nan, np.float32) for _ in range(20)]  # over their memory
    np.testing.assert_allclose(workload.train_epoch(), expected, rtol=1e-5)
    assert len(junk) == 20


@IN_TORCH
def test_a_loss_that_is_not_finite_is_kept_as_none(adapter, device, small_model, random):
    """From weights: TensorFlow's max-pool on a CPU makes a number of pictures without one."""
    workload, _ = ready(adapter, device, small_model, random)
    workload.load_weights({n: w * np.nan for n, w in small_model.initial_weights(0).items()})
    assert finite_or_none(timed_epoch(TrainingTask(workload), None, 1, 0)[1]) == [None, None, None]


@IN_TORCH
def test_what_an_epoch_allocates(adapter, device, small_model, random):
    workload, _ = ready(adapter, device, small_model, random, steps=3)
    workload.train_epoch()
    three = workload.allocated()
    if three is None:
        pytest.skip(f"{adapter.title} does not tell")
    workload, _ = ready(adapter, device, small_model, random, steps=6)
    workload.train_epoch()
    assert three > 4 * 3 * 32 * 32  # bytes: more than one picture
    assert workload.allocated() == pytest.approx(2 * three, rel=0.2)


@IN_TORCH
def test_the_peaks_product_and_copy_are_real(adapter, device, small_model):
    """Right values, other memory, and not faster than the memory can be."""
    arrays = adapter.build(Job(small_model, device, THREADS, "float32")).arrays()
    assert peak.matrix_multiplication_gflops(arrays, PEAK_WORK[device]) > 0
    copied = peak.copy_gigabytes(arrays, PEAK_WORK[device])
    if device == "cpu":
        peak.check_copy(copied, peak.host_copy_gigabytes(PEAK_WORK[device], THREADS, copied))


@IN_TORCH
def test_details_are_words(adapter, device, small_model, random):
    workload, _ = ready(adapter, device, small_model, random)
    details = workload.details()
    assert details
    assert all(type(k) is str and type(v) is str for k, v in details.items())
    workload.train_epoch()
    workload.free_memory()
    if device == "cpu":
        assert workload.peak_memory() is None
    else:
        assert workload.peak_memory() > 4 * 3 * 32 * 32  # bytes: a picture
    assert all(type(v) is float and v >= 0 for v in workload.epoch_figures().values())
    assert workload.threads() in (None, THREADS)
    assert adapter.installed()


@IN_TORCH
def test_a_layer_that_it_does_not_know_is_named(adapter, device, small_model):
    @dataclass(frozen=True)
    class Wavelet(Layer):
        pass

    model = replace(small_model, layers=(Wavelet(), *small_model.layers))
    with pytest.raises(Exception, match="Wavelet"):
        parity.run_workload(adapter.build, Job(model, device, THREADS, "float32"))
