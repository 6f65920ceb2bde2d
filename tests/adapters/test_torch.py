import numpy as np
import pytest
from small_models import SMALL_MODELS, make_inputs, make_labels

from crossbench.engine.batches import ArrayBatches, StreamedBatches
from crossbench.models import SGD, Dense, Dropout, Flatten, Model, SoftmaxCrossEntropy
from crossbench.workload import Job

BATCH = 4


@pytest.fixture
def adapter(installed):
    return installed("torch")


SHAPE = (3, 2, 2)


def built(adapter, *layers):
    layers = (*layers, Flatten(), Dense(10))
    model = Model("made", SHAPE, layers, SoftmaxCrossEntropy(), SGD(0.1), BATCH, "the tests")
    workload = adapter.build(Job(model, "cpu", 2, "float32"))
    workload.load_weights(model.initial_weights(0))
    return workload


def batches(masks=None):
    inputs = np.random.default_rng(0).random((1, BATCH, *SHAPE), np.float32)
    return ArrayBatches(inputs, np.zeros((1, BATCH), np.int64), masks)


@pytest.mark.parametrize("name", ["lenet", "averaged"])
def test_a_step_computes_what_the_model_describes_and_no_more(adapter, lenet, name):
    """Not a forward pass that nobody needs."""
    from torch.utils.flop_counter import FlopCounterMode

    model = lenet if name == "lenet" else SMALL_MODELS[name]
    workload = adapter.build(Job(model, "cpu", 2, "float32"))
    workload.load_weights(model.initial_weights(0))
    dtype = np.float32 if model.vocabulary is None else np.int32
    inputs = np.ones((3, BATCH, *model.input_shape), dtype)
    workload.place(ArrayBatches(inputs, np.zeros((3, BATCH), np.int64)))
    with FlopCounterMode(display=False) as counter:
        workload.train_epoch()
    assert counter.get_total_flops() == 3 * BATCH * model.training_flops


def test_after_the_proof_a_dropout_is_torchs_own_again(adapter):
    import torch

    workload = built(adapter, Dropout(0.5))
    dropout = workload.dropouts["dropout1"]
    assert type(dropout) is torch.nn.Dropout
    all_kept = batches({"dropout1": np.ones((1, BATCH, *SHAPE), bool)})
    workload.place(all_kept)
    assert workload.loss_and_gradients(next(iter(all_kept)))[0] == workload.train_epoch()[0]
    assert not dropout._forward_hooks
    ones = torch.ones(1000)
    assert (dropout(ones) == 0).any()


def test_convolutions_are_tuned_and_float32_is_whole(adapter):
    import torch

    built(adapter)
    assert torch.backends.cudnn.benchmark
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


def test_streamed_batches_travel_through_pinned_memory(adapter, monkeypatch):
    """Without a GPU: what is asked of the tensors on the way to one."""
    import torch

    asked = []

    def moved(tensor, device, non_blocking=False):
        asked.append((device.type, non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: (asked.append("pin"), tensor)[1])
    workload = built(adapter)
    monkeypatch.setattr(torch.Tensor, "to", moved)
    workload.device = torch.device("cuda")
    placed = batches()
    workload.place(StreamedBatches(placed.inputs, placed.labels))
    assert asked == []  # when its turn comes
    next(iter(workload.batches))
    assert asked == ["pin", ("cuda", True)] * 2
    asked.clear()
    workload.place(placed)
    assert asked == [("cuda", False)] * 2


@pytest.mark.parametrize("name", ["plain", "normed", "dropped", "averaged", "speaking"])
def test_the_optimizers_state_stays_where_it_is(adapter, name):
    """A load between two epochs leaves nothing that the next one, which is timed, allocates."""
    import torch

    model = SMALL_MODELS[name]
    workload = adapter.build(Job(model, "cpu", 2, "float32"))
    random = np.random.default_rng(0)
    data = [make(model, (2, BATCH), random, "float32") for make in (make_inputs, make_labels)]
    workload.place(ArrayBatches(*data))

    def state():
        tensors = [t for each in workload.optimizer.state.values() for t in each.values()]
        return [tensor for tensor in tensors if torch.is_tensor(tensor)]

    losses = []
    for _ in range(2):
        workload.load_weights(model.initial_weights(0))
        before = [tensor.data_ptr() for tensor in state()]
        assert all((tensor == 0).all() for tensor in state())
        losses.append(workload.train_epoch())
    assert before
    assert [tensor.data_ptr() for tensor in state()] == before
    np.testing.assert_array_equal(*losses)


def test_batches_that_are_predicted_one_by_one_switch_the_module_once(adapter, monkeypatch):
    workload = built(adapter)
    inputs = np.zeros((3, BATCH, *SHAPE), np.float32)
    workload.place(ArrayBatches(inputs, np.zeros((3, BATCH), np.int64)))
    switched, train = [], workload.module.train
    monkeypatch.setattr(workload.module, "train", lambda *on: switched.append(on) or train(*on))
    assert len(list(workload.predict_batches())) == 3
    assert switched == [(False,), ()]
