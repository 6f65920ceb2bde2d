"""Measure what a framework reaches on a device without a model.

That is its fastest matrix multiplication and copy, whose results are checked, beside what the
memory itself can do.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pynvml

from ..inputs.names import BFLOAT16, FLOAT32, TF32, Compute
from ..workload import DeviceArrays
from .checked import AdapterError
from .timing import timed
from .usage import Clock

MIN_CALLS = 4
"""Timed calls of an operation, at least."""
ROWS = 16
"""Rows and columns of a product where they cross it is checked."""
PROBES = 64
"""Values of a copy that are fetched to see whether it is over."""
MAX_PRODUCT_ERROR: dict[Compute, float] = {FLOAT32: 1e-6, TF32: 2e-5, BFLOAT16: 2e-4}
"""The largest error of a product, ‖error‖ / (‖a‖ ‖b‖), a and b the sampled rows and columns."""
MAX_LATE_SHARE, MAX_LATE_SECONDS = 0.25, 0.002
"""Share of a call's seconds, and seconds, for which the device may go on working after it returned,
whichever is larger."""
MAX_COPY_RATIO = 3.0
"""The largest ratio of a framework's copy to what the memory itself can do."""
MAX_HOST_SECONDS = 5.0
"""The longest that NumPy's copies are repeated, in seconds, where a framework's is too fast beside
them."""


@dataclass(frozen=True)
class PeakWork:
    """Say how the peak is measured: with what matrices and arrays, and for how long.

    size: rows and columns of the matrices. copied: bytes of the copy; more than any cache holds,
    and enough to hide the synchronization. seconds: of the calls of each, with their checks.
    """

    size: int
    copied: int
    seconds: float


PEAK_WORK = {"cpu": PeakWork(2048, 2**28, 0.5), "gpu": PeakWork(8192, 2**30, 3.0)}
"""The work by the type of the device; a product has 0.02 or 1.1 TFLOP."""


def matrix_multiplication_gflops(
    arrays: DeviceArrays, work: PeakWork, compute: Compute = FLOAT32
) -> float:
    """Return the 10^9 FLOPs per second of the fastest matrix multiplication in a precision.

    Raises AdapterError where a product is wrong, or is computed after the call has returned.
    """
    n, random = work.size, np.random.default_rng(0)
    step = max(1, n // ROWS)
    a, b = random.standard_normal((2, n, n), np.float32)

    def inputs() -> list[np.ndarray]:
        """Return matrices that no call had before."""
        a[:] = np.roll(a, 1, axis=1)
        return [a, b]

    def check(product: Any, factors: list[Any]) -> None:
        found = arrays.fetch(product, step)
        rows, columns = (matrix.astype(np.float64) for matrix in (a[::step], b[:, ::step]))
        # no BLAS: its threads would still wait busily while the next product is timed
        expected = np.einsum("ij,jk->ik", rows, columns)
        scale = _norm(rows) * _norm(columns)
        same_rows = found.shape == (len(rows), n)
        error = _norm(found[:, ::step] - expected) / scale if same_rows else np.inf
        if not error <= MAX_PRODUCT_ERROR[compute]:
            raise AdapterError("multiply() of the adapter returned a product with wrong values")

    put = arrays.put if compute == FLOAT32 else arrays.operand
    seconds = _best_seconds("multiply()", arrays, put, arrays.multiply, inputs, check, step, work)
    return 2 * n**3 / seconds / 1e9


def copy_gigabytes(arrays: DeviceArrays, work: PeakWork) -> float:
    """Return the 10^9 bytes per second, read and written, of the fastest copy.

    Raises AdapterError where a copy shares the memory of its source, has other values, or is
    written after the call has returned.
    """
    source = np.random.default_rng(0).random(work.copied // 4, np.float32)
    step = max(1, len(source) // PROBES)

    def inputs() -> list[np.ndarray]:
        """Return an array that no call had before."""
        np.add(source, 1, out=source)
        return [source]

    def check(copied: Any, sources: list[Any]) -> None:
        addresses = arrays.address(copied), arrays.address(sources[0])
        if addresses[0] is not None and addresses[0] == addresses[1]:
            raise AdapterError("copy() of the adapter returned the memory of its source")
        if not np.array_equal(arrays.fetch(copied), source):
            raise AdapterError(
                "copy() of the adapter returned other values than those of its source"
            )

    seconds = _best_seconds("copy()", arrays, arrays.put, arrays.copy, inputs, check, step, work)
    return 2 * source.nbytes / seconds / 1e9


def host_copy_gigabytes(work: PeakWork, threads: int, gigabytes: float = 0.0) -> float:
    """Return the 10^9 bytes per second of NumPy's fastest copy of the same size, in threads.

    gigabytes: the rate of a framework's copy, in the same unit. While check_copy would refuse it,
    NumPy's copies are repeated, for up to MAX_HOST_SECONDS: another process may have slowed them.
    """
    source = np.ones(work.copied // 4, np.float32)
    into = np.zeros_like(source)
    parts = np.array_split(into, threads), np.array_split(source, threads)
    rates, clock = list[float](), Clock.start()
    with ThreadPoolExecutor(threads) as pool:
        while len(rates) < MIN_CALLS or (
            gigabytes > MAX_COPY_RATIO * max(rates) and clock.seconds()[0] < MAX_HOST_SECONDS
        ):
            seconds = timed(lambda: list(pool.map(np.copyto, *parts)))[1]
            rates.append(2 * source.nbytes / seconds / 1e9)
    return max(rates)


def gpu_bandwidth(gpu: Any) -> float | None:
    """Return the 10^9 bytes per second of the GPU's memory, by its clock and bus; None if unknown.

    Two transfers happen in each cycle. gpu: NVML's handle, or None.
    """
    if gpu is None:
        return None
    with suppress(pynvml.NVMLError):
        megahertz = pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_MEM)
        bits = pynvml.nvmlDeviceGetMemoryBusWidth(gpu)
        return 2 * megahertz * bits / 8 / 1e3 or None
    return None


def check_copy(gigabytes: float, limit: float | None) -> None:
    """Raise AdapterError where a copy is faster than the memory can be.

    limit: what the memory itself reaches, in 10^9 bytes per second; None if unknown.
    """
    if limit is not None and gigabytes > MAX_COPY_RATIO * limit:
        raise AdapterError(
            f"copy() of the adapter reached {gigabytes:,.0f} GB/s where the memory reaches "
            f"{limit:,.0f} GB/s: it did not copy"
        )


def _norm(matrix: np.ndarray) -> float:
    """Return the Euclidean norm, without BLAS."""
    return float(np.sqrt(np.sum(matrix * matrix)))


def _best_seconds(
    name: str,
    arrays: DeviceArrays,
    put: Callable[[np.ndarray], Any],
    operation: Callable[..., Any],
    inputs: Callable[[], list[np.ndarray]],
    check: Callable[[Any, list[Any]], None],
    step: int,
    work: PeakWork,
) -> float:
    """Return the seconds of the fastest call, after a first one that may compile.

    Each call gets new inputs, and `check` its result and these. name: of the operation, for the
    errors. step: of the rows that are fetched to see whether the call was over.
    """
    into, seconds, late = put(inputs()[0]), list[float](), list[float]()
    clock = Clock.start()
    while len(seconds) <= MIN_CALLS or clock.seconds()[0] < work.seconds:
        on_device = [put(array) for array in inputs()]
        into, taken = timed(partial(operation, *on_device, into))
        first, again = (timed(partial(arrays.fetch, into, step))[1] for _ in range(2))
        check(into, on_device)
        seconds.append(taken)
        late.append(first - again)
    best, went_on = min(seconds[1:]), min(late[1:])
    if went_on > max(MAX_LATE_SECONDS, MAX_LATE_SHARE * best):
        raise AdapterError(
            f"{name} of the adapter was not over when it returned: the device went on for "
            f"{went_on:.2g} s"
        )
    return best
