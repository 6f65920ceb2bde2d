"""Measure how often the 95 % interval of the median contains the true median.

The shares are by the number of values and the kind of noise. Run by hand: python
benchmarks/interval_coverage.py [tries].
"""

import sys

import numpy as np

from crossbench.results.statistics import estimate


def normal(random, count):
    return random.normal(size=count)


def skewed(random, count):
    return random.exponential(size=count) - np.log(2)


def spiked(random, count):
    """Return normal noise in which one value in ten is far off."""
    return normal(random, count) + random.normal(0, 8, count) * (random.random(count) < 0.1)


def main(tries=1000):
    for count in (6, 8, 10, 15, 30):
        random, shares = np.random.default_rng(0), []
        for noise in (normal, skewed, spiked):
            covered = sum(
                not estimate(list(10 + noise(random, count))).excludes(10) for _ in range(tries)
            )
            shares.append(f"{noise.__name__} {covered / tries:.1%}")
        print(f"{count} values: {', '.join(shares)}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
