"""Test how the calls outside of the timed epochs are measured."""

from types import SimpleNamespace

import numpy as np
import pytest

from crossbench.engine import untimed, usage
from crossbench.engine.untimed import CallMeter, copy_seconds


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that only the test advances, in seconds."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(usage.time, "perf_counter", lambda: clock.now)
    return clock


@pytest.mark.parametrize(
    ("calls", "seconds"),
    [
        ([(1, 9.0), (1, 0.4), (1, 0.5), (1, 0.1)], 0.4),  # the median of all but the first
        ([(10, 3.0), (2, 0.6)], 0.3),  # of each batch
        # the first call with as many batches may compile
        ([(10, 90.0), (3, 30.0), (2, 20.0), (1, 9.0), (3, 0.3)], 0.1),
    ],
)
def test_the_median_of_the_calls_but_the_first_counts(clock, calls, seconds):
    meter = CallMeter()
    for steps, taken in calls:
        with meter.measured("place", steps):
            clock.now += taken
    found = meter.calls()["place"]
    assert (found.calls, found.seconds) == (len(calls), pytest.approx(seconds))


def test_what_is_too_large_is_copied_in_part(monkeypatch):
    arrays = [np.zeros((8, 3, 16, 16), np.float32) for _ in range(4)]
    whole = copy_seconds(arrays)
    copied = []
    monkeypatch.setattr(untimed, "MAX_SAMPLED_BYTES", arrays[0].nbytes)
    monkeypatch.setattr(untimed.np, "array", lambda array, **_: copied.append(array.shape))
    assert copy_seconds(arrays) > 0 < whole
    assert copied == [(8, 16, 16, 3)] * untimed.COPIES
