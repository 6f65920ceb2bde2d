"""The statistics of the table: small functions of plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import Any

CONFIDENCE = 0.95
LEAST = 6
"""Values that an interval needs. The bootstrapped median of n values lies between their extremes,
which hold the true median with 1 - 2 / 2^n: 94 % for five, 97 % for six."""


@dataclass(frozen=True)
class Estimate:
    """Several measurements of one thing: their median, its 95 % interval, and the extremes.

    low and high are None where there are fewer than LEAST values.
    """

    median: float
    low: float | None
    high: float | None
    minimum: float
    maximum: float
    count: int

    @property
    def width(self) -> float:
        """Of the interval, relative to the median; infinite where there is none."""
        if self.low is None or self.high is None:
            return math.inf
        return (self.high - self.low) / self.median

    def is_over(self, value: float) -> bool:
        """Whether the interval, or the range where there is none, lies above the value."""
        return (self.minimum if self.low is None else self.low) > value

    def scaled(self, factor: float) -> Estimate:
        """In another unit; factor is over 0."""
        return Estimate(
            self.median * factor,
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
            self.minimum * factor,
            self.maximum * factor,
            self.count,
        )

    def excludes(self, value: float) -> bool:
        """Whether there is an interval, and the value is outside of it."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high


def estimate(values: list[float]) -> Estimate:
    """ValueError where there is none."""
    low, high = _interval(values) if len(values) >= LEAST else (None, None)
    return Estimate(median(values), low, high, min(values), max(values), len(values))


def paired_ratio(numerator: Mapping[int, float], denominator: Mapping[int, float]) -> Estimate:
    """The ratio within each round that both have: a drift of the machine cancels."""
    rounds = sorted(numerator.keys() & denominator.keys())
    return estimate([numerator[r] / denominator[r] for r in rounds])


def unpaired_ratio(numerator: list[float], denominator: list[float]) -> Estimate:
    """The ratio of the medians of two runs, which have no rounds in common."""
    enough = min(len(numerator), len(denominator)) >= LEAST
    low, high = _interval(numerator, denominator) if enough else (None, None)
    return Estimate(
        median(numerator) / median(denominator),
        low,
        high,
        min(numerator) / max(denominator),
        max(numerator) / min(denominator),
        min(len(numerator), len(denominator)),
    )


def _interval(*samples: list[float]) -> tuple[float, float]:
    """The expanded percentile bootstrap (T. Hesterberg, "What Teachers Should Know About the
    Bootstrap", The American Statistician 69, 2015) of the median, or of two medians' ratio: the
    plain one is too narrow for few values. Its seed is fixed: the same values give the same.
    """
    import numpy as np
    from scipy import stats

    n = min(map(len, samples))
    z = math.sqrt(n / (n - 1)) * float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1))

    def statistic(*resampled: Any, axis: int = -1) -> Any:
        medians = [np.median(sample, axis=axis) for sample in resampled]
        return medians[0] if len(medians) == 1 else medians[0] / medians[1]

    found = stats.bootstrap(
        samples,
        statistic,
        confidence_level=1 - 2 * NormalDist().cdf(-z),
        method="percentile",
        rng=0,
    ).confidence_interval
    return float(found.low), float(found.high)
