import numpy as np
import pytest
from small_models import SMALL_MODELS

from crossbench.engine.batches import ArrayBatches, StreamedBatches
from crossbench.models import (
    LSTM,
    SGD,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Model,
    Residual,
    SoftmaxCrossEntropy,
)
from crossbench.workload import Job

BATCH = 4


@pytest.fixture
def adapter(installed):
    return installed("torch")


def built(adapter, layers, input_shape):
    model = Model("made", input_shape, layers, SoftmaxCrossEntropy(), SGD(0.1), BATCH, "the tests")
    workload = adapter.build(Job(model, "cpu", 2, "float32"))
    weights = model.initial_weights(0)
    workload.load_weights(weights)
    return workload, weights


def batches(input_shape, masks=None):
    inputs = np.random.default_rng(0).random((1, BATCH, *input_shape), np.float32)
    return ArrayBatches(inputs, np.zeros((1, BATCH), np.int64), masks)


@pytest.mark.parametrize("name", ["lenet", "plain", "residual", "averaged"])
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


def test_the_weights_are_its_own(adapter):
    """torch.from_numpy shares the array: training would change the caller's."""
    workload, weights = built(adapter, (Flatten(), Dense(10)), (3, 2, 2))
    before = {name: array.copy() for name, array in weights.items()}
    workload.place(batches((3, 2, 2)))
    workload.train_epoch()
    assert (workload.weights()["dense1.weight"] != before["dense1.weight"]).any()
    for name, array in weights.items():
        np.testing.assert_array_equal(array, before[name])


def test_layers_inside_of_others_have_their_own_names(adapter):
    inner = Residual((Conv(3, (1, 1)),))
    outer = Residual((inner, Conv(2, (1, 1))), (Conv(2, (1, 1)),))
    workload, weights = built(adapter, (outer, Flatten(), Dense(10)), (3, 2, 2))
    assert list(workload.weights()) == list(weights)
    assert {"conv1.weight", "conv2.bias", "conv3.weight"} <= set(weights)
    assert "residual1.body.residual2.body.conv1.weight" in workload.module.state_dict()


def test_the_second_bias_of_a_recurrent_layer_stays_0(adapter):
    layers = (Embedding(9, 3), LSTM(2, bidirectional=True), Dense(10))
    workload, _ = built(adapter, layers, (5,))
    workload.place(ArrayBatches(np.ones((1, BATCH, 5), np.int32), np.zeros((1, BATCH), np.int64)))
    before = workload.weights()
    workload.train_epoch()
    after = workload.weights()
    lstm = workload.module.lstm1
    for direction in ("", "_reverse"):
        assert (before[f"lstm1.bias{direction}"] != after[f"lstm1.bias{direction}"]).any()
        assert (getattr(lstm, f"bias_hh_l0{direction}") == 0).all()


def test_after_the_proof_a_dropout_is_torchs_own_again(adapter):
    import torch

    workload, _ = built(adapter, (Dropout(0.5), Flatten(), Dense(10)), (3, 2, 2))
    dropout = workload.module.dropout1
    assert type(dropout) is torch.nn.Dropout
    all_kept = batches((3, 2, 2), {"dropout1": np.ones((1, BATCH, 3, 2, 2), bool)})
    workload.place(all_kept)
    assert workload.loss_and_gradients(next(iter(all_kept)))[0] == workload.train_epoch()[0]
    assert not dropout._forward_hooks
    ones = torch.ones(1000)
    assert (dropout(ones) == 0).any()


def test_gradients_take_no_draws_from_the_training(adapter):
    import torch

    workload, _ = built(adapter, (Dropout(0.5), Flatten(), Dense(10)), (3, 2, 2))
    before = torch.get_rng_state()
    workload.loss_and_gradients(next(iter(batches((3, 2, 2)))))
    assert (torch.get_rng_state() == before).all()


def test_convolutions_are_tuned_and_float32_is_whole(adapter):
    import torch

    built(adapter, (Flatten(), Dense(10)), (3, 2, 2))
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
    workload, _ = built(adapter, (Flatten(), Dense(10)), (3, 2, 2))
    monkeypatch.setattr(torch.Tensor, "to", moved)
    workload.device = torch.device("cuda")
    placed = batches((3, 2, 2))
    workload.place(StreamedBatches(placed.inputs, placed.labels))
    assert asked == []  # when its turn comes
    next(iter(workload.batches))
    assert asked == ["pin", ("cuda", True)] * 2
    asked.clear()
    workload.place(placed)
    assert asked == [("cuda", False)] * 2
