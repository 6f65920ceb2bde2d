import pytest

from crossbench.results.statistics import Estimate, estimate, paired_ratio


def test_estimate():
    assert estimate([3.0, 1.0, 2.0]) == Estimate(2.0, 1.0, 3.0)
    with pytest.raises(ValueError, match="median"):
        estimate([])


def test_a_drift_of_the_machine_cancels_in_the_paired_ratio():
    # everything takes three times as long in round 2
    slow, fast = {1: 2.0, 2: 6.0, 3: 2.0}, {1: 1.0, 2: 3.0, 3: 1.0}
    assert paired_ratio(slow, fast) == Estimate(2.0, 2.0, 2.0)


def test_only_rounds_that_both_have_are_paired():
    assert paired_ratio({1: 2.0, 2: 8.0}, {2: 2.0, 3: 1.0}) == Estimate(4.0, 4.0, 4.0)
