import re
from types import SimpleNamespace

import numpy as np
import pynvml
import pytest
from array_faults import (
    LeavesOutTheRest,
    Remembers,
    ReturnsAtOnce,
    SameBuffer,
    SameBufferInSecret,
)

from crossbench.adapters.reference import NumpyArrays
from crossbench.engine import peak
from crossbench.engine.checked import AdapterError
from crossbench.engine.peak import PeakWork
from crossbench.engine.timing import timed

WORK = PeakWork(1024, 2**26, 0.0)
MULTIPLY, COPY = peak.matrix_multiplication_gflops, peak.copy_gigabytes


@pytest.mark.parametrize(
    ("measure", "fault", "message"),
    [
        (MULTIPLY, Remembers, "multiply() of the adapter returned a product with wrong values"),
        (MULTIPLY, LeavesOutTheRest, "multiply() of the adapter returned a product with wrong val"),
        (MULTIPLY, ReturnsAtOnce, "multiply() of the adapter was not over when it returned"),
        (COPY, SameBuffer, "copy() of the adapter returned the memory of its source"),
        (COPY, Remembers, "copy() of the adapter returned other values than those of its source"),
        (COPY, LeavesOutTheRest, "copy() of the adapter returned other values than those of its s"),
        (COPY, ReturnsAtOnce, "copy() of the adapter was not over when it returned"),
    ],
)
def test_what_is_not_done_in_the_call_is_no_peak(measure, fault, message):
    with pytest.raises(AdapterError, match=re.escape(message)):
        measure(fault(NumpyArrays()), WORK)


def test_a_copy_faster_than_the_memory_is_no_peak():
    """As where an array cannot be changed and its address is unknown: nothing else can tell."""
    copied = peak.copy_gigabytes(SameBufferInSecret(NumpyArrays()), WORK)
    with pytest.raises(AdapterError, match=r"GB/s where the memory reaches .*: it did not copy"):
        peak.check_copy(copied, peak.host_copy_gigabytes(WORK, 1))


def test_a_copy_beside_slowed_ones_of_numpy_is_a_peak(monkeypatch):
    """The first copies take 50 times as long, as where another process has the CPUs."""
    gigabytes, calls = peak.host_copy_gigabytes(WORK, 1), []

    def slowed(copies):
        calls.append(timed(copies))
        result, seconds = calls[-1]
        return result, seconds * (50 if len(calls) <= 2 * peak.MIN_CALLS else 1)

    monkeypatch.setattr(peak, "timed", slowed)
    assert peak.host_copy_gigabytes(WORK, 1) < gigabytes / peak.MAX_COPY_RATIO
    assert len(calls) == peak.MIN_CALLS
    peak.check_copy(gigabytes, peak.host_copy_gigabytes(WORK, 1, gigabytes))
    monkeypatch.setattr(peak, "MAX_HOST_SECONDS", 0.1)
    peak.host_copy_gigabytes(WORK, 1, 1e9)  # ends all the same


def test_a_product_in_a_lower_precision_is_no_peak():
    """TensorFloat-32 rounds both factors to 10 bits of mantissa."""

    class Rounded(NumpyArrays):
        def multiply(self, a, b, into):
            a, b = (((x.view(np.int32) + (1 << 12)) & -(1 << 13)).view("f4") for x in (a, b))
            return np.matmul(a, b, out=into)

    with pytest.raises(AdapterError, match="a product with wrong values"):
        peak.matrix_multiplication_gflops(Rounded(), WORK)


def test_the_bandwidth_of_a_gpu_follows_from_its_clock_and_bus(monkeypatch):
    """An H100's data sheet says 3.35 TB/s."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMaxClockInfo", lambda gpu, clock: gpu.clock)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryBusWidth", lambda gpu: 5120)
    assert peak.gpu_bandwidth(SimpleNamespace(clock=2619)) == pytest.approx(3352, abs=1)
    assert peak.gpu_bandwidth(SimpleNamespace(clock=0)) is None
    assert peak.gpu_bandwidth(None) is None

    def unknown(gpu):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryBusWidth", unknown)
    assert peak.gpu_bandwidth(SimpleNamespace(clock=2619)) is None
