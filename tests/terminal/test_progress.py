"""The time that is left, and the lines of a log."""

import threading

import pytest
from samples import comparison, epochs, result

from crossbench.results.reference import Reference
from crossbench.terminal import progress
from crossbench.terminal.progress import Display, RoundClock, duration

REFERENCE = Reference([], False)


@pytest.fixture
def clock(monkeypatch):
    """Return a list whose only value is the seconds of the monotonic clock."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def with_rounds(number, **settings):
    c = comparison(result("torch", [], status="pending"), **settings)
    c.reference = REFERENCE
    c.results[0].epochs = epochs([9.0, *[2.0] * number]) if number else []
    return c


def test_nothing_is_known_before_the_first_round():
    left = RoundClock()
    assert left.seconds_left() is None
    left.update(with_rounds(0, rounds=6))
    assert left.seconds_left() is None


def test_the_time_that_is_left_follows_from_the_rounds(clock):
    left = RoundClock()
    left.update(with_rounds(0, rounds=6))
    clock[0] += 15
    left.update(with_rounds(1, rounds=6))
    clock[0] += 5
    left.update(with_rounds(1, rounds=6))  # with a peak
    assert left.seconds_left() == 100
    clock[0] += 15
    assert left.seconds_left() == 85
    left.update(with_rounds(2, rounds=6))
    assert left.seconds_left() == 60  # 4 rounds of 15 s: the first one did more than these
    clock[0] += 25
    left.update(with_rounds(3, rounds=6))
    assert left.seconds_left() == 75  # 3 rounds of 25 s: the second one's epochs were whole


def test_a_resumed_run_counts_its_own_rounds(clock):
    left = RoundClock()
    left.update(with_rounds(3, rounds=6))
    assert left.seconds_left() is None
    clock[0] += 10
    left.update(with_rounds(4, rounds=6))
    assert left.seconds_left() == 20


def test_until_the_ratios_are_precise_the_limit_is_told(clock):
    left = RoundClock()
    left.update(with_rounds(0, rounds=None, max_seconds=600.0))
    clock[0] += 20
    left.update(with_rounds(1, rounds=None, max_seconds=600.0))
    assert left.seconds_left() == 580  # the limit; five rounds of 20 s would be over before
    clock[0] += 20
    left.update(with_rounds(2, rounds=None, max_seconds=600.0))
    assert left.seconds_left() == 560
    clock[0] += 550
    left.update(with_rounds(3, rounds=None, max_seconds=600.0))
    assert left.seconds_left() == 3 * 550  # the rounds that an interval needs


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (61, "1 min"), (3900, "1 h 5 min")]
)
def test_a_duration_is_told_in_words(seconds, words):
    assert duration(seconds) == words


def test_no_thread_draws(monkeypatch, capsys):
    """It would take CPU time while an epoch is timed."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    before = threading.active_count()
    with Display() as display:
        assert display.live is not None
        display.begin("parity")
        display.update(with_rounds(1, rounds=6))
        assert threading.active_count() == before


def test_a_log_has_a_line_for_each_piece_of_work(capsys):
    with Display() as display:
        display.begin("parity")
        display.update(with_rounds(1, rounds=6))
        display.begin("torch cpu: round\n2 of 6")
    _, err = capsys.readouterr()
    assert err == "crossbench: parity\ncrossbench: torch cpu: round 2 of 6\n"
