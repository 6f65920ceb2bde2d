"""Compute the statistics of the table, from plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, geometric_mean, median
from typing import Any

CONFIDENCE = 0.95
MIN_ROUNDS = 6
"""Values that an interval needs. The bootstrapped median of n values lies between their extremes,
which contain the true median with probability 1 - 2 / 2^n: 94 % for five values, 97 % for six."""
PRECISION = 0.05
"""A ratio is decided where its interval is narrower than this, relative to it, or is clear:
benchmarks/interval_coverage.py measures what stopping then does to the intervals."""
RESAMPLES = 9999
MIN_RESAMPLES = 999
MAX_DRAWN_VALUES = 10_000_000
"""Values drawn for one interval, which takes a quarter of a second. More than 1,000 measurements
get fewer resamples, more than 10,000 get MIN_RESAMPLES: an end of the interval then varies by some
4 % of its width."""
DRAWN_VALUES_PER_CHUNK = 4_000_000
"""Values drawn at a time, which take some 100 MB: the random indices, the values, and the copy that
the median partitions."""


@dataclass(frozen=True)
class Estimate:
    """Summarize measurements of one thing: their median, its 95 % interval, and the extremes.

    low and high are None where there are fewer than MIN_ROUNDS values.
    """

    median: float
    low: float | None
    high: float | None
    minimum: float
    maximum: float
    count: int

    @property
    def width(self) -> float:
        """Return the interval's width relative to the median; infinite where there is none."""
        if self.low is None or self.high is None:
            return math.inf
        return (self.high - self.low) / self.median

    def is_over(self, value: float) -> bool:
        """Return whether the interval, or the range if there is none, lies above the value."""
        return (self.minimum if self.low is None else self.low) > value

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate in another unit; factor is over 0."""
        return Estimate(
            self.median * factor,
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
            self.minimum * factor,
            self.maximum * factor,
            self.count,
        )

    @property
    def is_clear(self) -> bool:
        """Return whether the interval of a ratio is farther from 1 than it is wide."""
        if self.low is None or self.high is None:
            return False
        return max(self.low - 1, 1 - self.high) > self.high - self.low

    def excludes(self, value: float) -> bool:
        """Return whether there is an interval and the value is outside of it."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high


def estimate(values: list[float]) -> Estimate:
    """Return the estimate of the values; ValueError where there is none."""
    middle, smallest, largest = median(values), min(values), max(values)
    low = high = None
    if len(values) >= MIN_ROUNDS:
        low, high = _interval(values) if smallest < largest else (smallest, largest)
    return Estimate(middle, low, high, smallest, largest, len(values))


def round_ratios(
    numerator: Mapping[int, float], denominator: Mapping[int, float]
) -> dict[int, float]:
    """Return the ratio in each common round: a drift of the machine cancels in it."""
    rounds = sorted(numerator.keys() & denominator.keys())
    return {r: numerator[r] / denominator[r] for r in rounds}


def mean_ratio(ratios: Sequence[Mapping[int, float]]) -> Estimate | None:
    """Return the estimate of the geometric mean of several ratios by round; None without a common
    round.

    The mean is taken in each round, and the rounds are resampled as those of a single ratio are.
    """
    means = round_means(ratios)
    return estimate(list(means.values())) if means else None


def round_means(ratios: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the geometric mean of several ratios in each common round."""
    rounds = sorted(set(ratios[0]).intersection(*ratios)) if ratios else []
    return {r: geometric_mean(ratio[r] for ratio in ratios) for r in rounds}


def mean_over_models(ratios: Sequence[Sequence[Mapping[int, float]]]) -> Estimate | None:
    """Return the estimate of the geometric mean of ratios over models, each of which counts once;
    None where one has no round.

    ratios: by round, of each measurement of each model. The extremes are those of the models, and
    the interval says what other models of the kind would give: models are resampled, the
    measurements of each, and the rounds of these. So it needs as many models as an interval of
    rounds needs rounds. Of a single model it is the estimate of mean_ratio.
    """
    if len(ratios) == 1:
        return mean_ratio(ratios[0])
    values = [[list(measurement.values()) for measurement in model] for model in ratios]
    if not values or not all(model and all(model) for model in values):
        return None
    means = [geometric_mean(map(median, model)) for model in values]
    low, high = _interval_over_models(values) if len(means) >= MIN_ROUNDS else (None, None)
    return Estimate(geometric_mean(means), low, high, min(means), max(means), len(means))


def unpaired_ratio(numerator: list[float], denominator: list[float]) -> Estimate:
    """Return the ratio of the medians of two runs, which have no rounds in common."""
    enough = min(len(numerator), len(denominator)) >= MIN_ROUNDS
    low, high = _interval(numerator, denominator) if enough else (None, None)
    return Estimate(
        median(numerator) / median(denominator),
        low,
        high,
        min(numerator) / max(denominator),
        max(numerator) / min(denominator),
        min(len(numerator), len(denominator)),
    )


def _interval_over_models(values: list[list[list[float]]]) -> tuple[float, float]:
    """Return the bootstrap interval of mean_over_models; corrected as in _interval."""
    import numpy as np

    random = np.random.default_rng(0)
    drawn_means = []
    for model in values:
        drawn = np.stack([np.log(np.median(_drawn(random, rounds), axis=1)) for rounds in model])
        measurements = random.integers(len(model), size=drawn.shape)
        drawn_means.append(np.take_along_axis(drawn, measurements, axis=0).mean(axis=0))
    shape = (len(values), RESAMPLES)
    models = random.integers(len(values), size=shape)
    resamples = random.integers(RESAMPLES, size=shape)
    means = np.exp(np.stack(drawn_means)[models, resamples].mean(axis=0))
    tail = NormalDist().cdf(-_corrected(len(values)))
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _drawn(random: Any, values: list[float]) -> Any:
    """Return RESAMPLES rows of as many values, drawn from them."""
    return random.choice(values, (RESAMPLES, len(values)))


def _corrected(count: int) -> float:
    """Return the standard deviations of the interval's ends, with a correction for few values: see
    _interval.
    """
    from scipy import stats

    return math.sqrt(count / (count - 1)) * float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))


def _interval(*samples: list[float]) -> tuple[float, float]:
    """Return the bootstrap interval of the median, or of the ratio of two medians.

    It is the percentile bootstrap with a small-sample correction ("expanded"; T. Hesterberg, "What
    Teachers Should Know About the Bootstrap", The American Statistician 69, 2015): the plain one is
    too narrow for few values. The seed is fixed, so the same values give the same interval.
    """
    import numpy as np
    from scipy import stats

    fewest, most = min(map(len, samples)), max(map(len, samples))
    z = _corrected(fewest)

    def statistic(*resampled: Any, axis: int = -1) -> Any:
        medians = [np.median(sample, axis=axis) for sample in resampled]
        return medians[0] if len(medians) == 1 else medians[0] / medians[1]

    found = stats.bootstrap(
        samples,
        statistic,
        n_resamples=min(RESAMPLES, max(MIN_RESAMPLES, MAX_DRAWN_VALUES // most)),
        batch=max(1, DRAWN_VALUES_PER_CHUNK // most),
        confidence_level=1 - 2 * NormalDist().cdf(-z),
        method="percentile",
        rng=0,
    ).confidence_interval
    return float(found.low), float(found.high)
