"""The statistics of the table: small functions of plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Estimate:
    """Several measurements of one thing."""

    median: float
    minimum: float
    maximum: float


def estimate(values: list[float]) -> Estimate:
    """ValueError where there is none."""
    return Estimate(median(values), min(values), max(values))


def paired_ratio(numerator: Mapping[int, float], denominator: Mapping[int, float]) -> Estimate:
    """The ratio within each round that both have: a drift of the machine cancels."""
    rounds = sorted(numerator.keys() & denominator.keys())
    return estimate([numerator[r] / denominator[r] for r in rounds])
