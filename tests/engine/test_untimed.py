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


def test_the_median_of_the_calls_but_the_first_counts(clock):
    meter = CallMeter()
    for seconds in (9.0, 0.4, 0.5, 0.1):
        with meter.measured("load_weights"):
            clock.now += seconds
    found = meter.calls()["load_weights"]
    assert (found.calls, found.seconds) == (4, pytest.approx(0.4))


def test_a_call_with_several_batches_counts_for_each_of_them(clock):
    meter = CallMeter()
    for steps in (10, 2):
        with meter.measured("place", steps):
            clock.now += 0.3 * steps
    assert meter.calls()["place"].seconds == pytest.approx(0.3)


def test_the_first_call_with_as_many_batches_does_not_count(clock):
    """It may compile."""
    meter = CallMeter()
    for steps, seconds in ((10, 90.0), (3, 30.0), (2, 20.0), (1, 9.0), (3, 0.3)):
        with meter.measured("place", steps):
            clock.now += seconds
    found = meter.calls()["place"]
    assert (found.calls, found.seconds) == (5, pytest.approx(0.1))


def test_what_is_too_large_is_copied_in_part(monkeypatch):
    arrays = [np.zeros((8, 3, 16, 16), np.float32) for _ in range(4)]
    whole = copy_seconds(arrays)
    copied = []
    monkeypatch.setattr(untimed, "MAX_SAMPLED_BYTES", arrays[0].nbytes)
    monkeypatch.setattr(untimed.np, "array", lambda array, **_: copied.append(array.shape))
    assert copy_seconds(arrays) > 0 < whole
    assert copied == [(8, 16, 16, 3)] * untimed.COPIES
