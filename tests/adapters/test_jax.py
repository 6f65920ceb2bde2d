import numpy as np
import pytest

from crossbench import adapters
from crossbench.engine.batches import ArrayBatches
from crossbench.workload import Job


def test_the_step_is_compiled_once(small_model):
    """Twice would be in the first epoch: so it was, where the optimizer's state had no device."""
    adapter = adapters.get("jax")
    if reason := adapter.available("cpu"):
        pytest.skip(reason)
    workload = adapter.build(Job(small_model, "cpu", 2, "float32"))
    workload.load_weights(small_model.initial_weights(0))
    workload.place(
        ArrayBatches(np.zeros((3, 4, 3, 32, 32), np.float32), np.zeros((3, 4), np.int64))
    )
    workload.train_epoch()
    assert workload.step._cache_size() == 1
    workload.load_weights(small_model.initial_weights(0))
    workload.train_epoch()
    assert workload.step._cache_size() == 1
