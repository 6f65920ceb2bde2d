import tracemalloc

import numpy as np
import pytest
from scipy import stats

from crossbench.results.statistics import (
    MIN_ROUNDS,
    Estimate,
    estimate,
    mean_over_models,
    mean_ratio,
    round_ratios,
    unpaired_ratio,
)


def test_few_values_have_their_range_and_no_interval_in_any_unit():
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).scaled(10)
    assert found == Estimate(35.0, 10.0, 60.0, 10.0, 60.0, MIN_ROUNDS)
    assert (found.width, found.excludes(10.0), found.excludes(9.9)) == (50 / 35, False, True)
    few = estimate([3.0, 1.0, 2.0, 2.0, 2.0]).scaled(10)
    assert few == Estimate(20.0, None, None, 10.0, 30.0, MIN_ROUNDS - 1)
    assert (few.width, few.excludes(99)) == (float("inf"), False)


@pytest.mark.short(noise=("skewed",))
@pytest.mark.parametrize(
    "count", [MIN_ROUNDS, *(pytest.param(n, marks=pytest.mark.long) for n in (10, 30))]
)
@pytest.mark.parametrize("noise", ["normal", "skewed", "outliers"])
def test_the_interval_contains_the_true_median_as_often_as_it_says(count, noise):
    random = np.random.default_rng(0)

    def draw():
        if noise == "skewed":
            return random.exponential(size=count) + 1 - np.log(2)
        spikes = random.normal(0, 8, count) * (random.random(count) < 0.1)
        return 1 + random.normal(size=count) + (spikes if noise == "outliers" else 0)

    tries = 400
    covered = sum(not estimate(list(draw())).excludes(1.0) for _ in range(tries))
    assert covered / tries > 0.93  # 0.95, less two standard errors of 400 tries


def test_the_ratios_of_common_rounds_are_paired_so_that_a_drift_of_the_machine_cancels():
    slow, fast = {1: 2.0, 2: 6.0, 3: 2.0, 4: 9.0}, {1: 1.0, 2: 3.0, 3: 1.0, 5: 9.0}
    assert round_ratios(slow, fast) == {1: 2.0, 2: 2.0, 3: 2.0}


def test_the_ratio_of_two_runs():
    slow, fast = [2.0, 4.0, 6.0], [1.0, 2.0, 2.0]
    assert unpaired_ratio(slow, fast) == Estimate(2.0, None, None, 1.0, 6.0, 3)
    base, slower = np.random.default_rng(0).normal([[1], [1.05]], 0.01, (2, 12)).tolist()
    assert unpaired_ratio(slower, base).excludes(1)


def test_two_equal_runs_are_called_different_as_seldom_as_the_interval_says():
    random = np.random.default_rng(0)
    tries = 300
    wrong = sum(
        unpaired_ratio(*random.normal(1, 0.03, (2, 8)).tolist()).excludes(1) for _ in range(tries)
    )
    assert wrong / tries < 0.075  # 0.05, and two standard errors of 300 tries


@pytest.mark.parametrize("count", [8, 600])
def test_the_interval_equals_scipys_bootstrap(count):
    values = np.random.default_rng(0).lognormal(size=count)
    z = np.sqrt(count / (count - 1)) * stats.t.ppf(0.975, count - 1)
    whole = stats.bootstrap(
        (values,), np.median, confidence_level=2 * stats.norm.cdf(z) - 1, method="percentile", rng=0
    ).confidence_interval
    found = estimate(list(values))
    assert (found.low, found.high) == pytest.approx((whole.low, whole.high), rel=1e-15)


def test_an_interval_of_many_values_takes_little_memory():
    values = list(np.random.default_rng(0).normal(1, 0.1, 10_000))
    tracemalloc.start()
    found = estimate(values)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 300e6
    assert found.width == pytest.approx(4 * 1.25 * 0.1 / np.sqrt(10_000), rel=0.2)


def test_an_interval_over_models_holds_what_other_models_would_give():
    """The rounds of the same models alone say little of others of the kind."""
    random, tries = np.random.default_rng(0), 60
    covered = {mean_over_models: 0, mean_ratio: 0}
    for _ in range(tries):
        models = random.normal(0, 0.3, 8)
        ratios = [dict(enumerate(np.exp(model + random.normal(0, 0.02, 6)))) for model in models]
        covered[mean_ratio] += not mean_ratio(ratios).excludes(1.0)
        covered[mean_over_models] += not mean_over_models([[r] for r in ratios]).excludes(1.0)
    assert covered[mean_over_models] >= 0.9 * tries
    assert covered[mean_ratio] < 0.3 * tries


def test_a_mean_over_few_models_has_their_range():
    of_models = [[{1: 2.0, 2: 2.2}, {1: 2.1, 2: 2.1}], [{1: 0.5, 2: 0.5}]]
    found = mean_over_models(of_models)
    assert found.median == pytest.approx((2.1 * 0.5) ** 0.5)
    assert (found.low, found.minimum, found.maximum) == (None, 0.5, pytest.approx(2.1))
    assert mean_over_models(of_models[1:]) == estimate([0.5, 0.5])
    assert mean_over_models([[{}], [{1: 2.0}]]) is None
