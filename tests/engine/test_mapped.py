"""Arrays that do not count as an epoch's memory."""

import sys

import numpy as np
import psutil
import pytest

from crossbench.engine.mapped import mapped, release

ARRAYS = {
    "weights": np.arange(5_000_000, dtype=np.float32).reshape(1000, 5000),
    "labels": np.arange(7, dtype=np.int64),
}


def test_mapped_arrays_are_what_they_were_and_can_be_written():
    found = mapped(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    release(found.values())
    found["weights"][0, 0] = 9.0
    release(found.values())
    assert found["weights"][0, 0] == 9.0
    assert mapped({}) == {}


@pytest.mark.skipif(sys.platform != "linux", reason=f"{sys.platform} keeps them in memory")
def test_released_arrays_are_not_in_the_processs_memory():
    found, process = mapped(ARRAYS), psutil.Process()
    before = process.memory_info().rss
    release([found["weights"][3:].reshape(-1)])  # a view tells where it is
    assert before - process.memory_info().rss > 0.9 * ARRAYS["weights"].nbytes
    assert found["weights"].sum() == ARRAYS["weights"].sum()
    release([np.zeros(3)])  # not mapped: nothing to do
