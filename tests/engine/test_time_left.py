"""How long the rest of a run takes, by what its first round took."""

from dataclasses import replace

import pytest
from samples import comparison, epochs, result

from crossbench.engine import time_left
from crossbench.engine.time_left import TimeLeft, round_seconds
from crossbench.inputs.printable import duration


@pytest.fixture
def after_one_round(monkeypatch):
    """Return a comparison of a row with 10 batches: a step takes 0.5 s, a process 3 s to start, and
    a first epoch of three steps compiles for 2 s.
    """
    monkeypatch.setattr(time_left.time, "monotonic", lambda: 100.0)
    row = result("torch", [], status="pending")
    row.epochs, row.start_seconds = epochs([3.5, 1.5], steps=3), 3.0
    found = comparison(row, rounds=6)
    found.model["training_flops"] = 10**9
    return found


def test_the_whole_round_takes_longer_than_those_after_it(after_one_round):
    whole = 3 + 2 + 10 * 0.5 + 2 * 3 * 0.5 + 10 * 0.5  # its epoch is run again
    assert round_seconds(after_one_round, 2) == pytest.approx(whole)
    assert round_seconds(after_one_round, 3) == pytest.approx(3 + 2 + 3 * 3 * 0.5 + 0.5 * 3 * 0.5)


@pytest.mark.parametrize(
    ("settings", "done", "left"),
    [
        ({}, 1, range(2, 7)),
        ({}, 6, []),
        ({"rounds": None}, 9, [10]),  # until the ratios are decided one more is expected
        ({"target_loss": 1.0}, 1, []),  # nothing is said of training to a target
    ],
)
def test_the_time_left_is_that_of_the_rounds_that_are_not_done(
    after_one_round, settings, done, left
):
    after_one_round.settings = replace(after_one_round.settings, **settings)
    found = TimeLeft()
    assert found.words() == ""
    found.predict(after_one_round, done)
    seconds = sum(round_seconds(after_one_round, number) for number in left)
    assert found.words() == (f"; about {duration(seconds)} left" if left else "")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (61, "1 min"), (3900, "1 h 5 min")]
)
def test_a_duration_is_told_in_words(seconds, words):
    assert duration(seconds) == words
