import numpy as np
import pytest
from small_models import SMALL_MODELS

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
