"""Measure how often the 95 % interval of a median contains the true median.

First for a number of values that is fixed; then for ratios whose rounds end as those of a run do by
default: from six on, as soon as the ratio is decided, or at MOST_ROUNDS. The shares are by the kind
of noise. Run by hand: python benchmarks/interval_coverage.py [tries].
"""

import sys

import numpy as np

from crossbench.results.statistics import MIN_ROUNDS, PRECISION, estimate

MOST_ROUNDS = 12


def normal(random, count):
    return random.normal(size=count)


def skewed(random, count):
    return random.exponential(size=count) - np.log(2)


def spiked(random, count):
    """Return normal noise in which one value in ten is far off."""
    return normal(random, count) + random.normal(0, 8, count) * (random.random(count) < 0.1)


NOISES = (normal, skewed, spiked)


def stopped(random, noise, ratio, spread):
    """Return the estimate of a ratio at the end of the rounds. spread: of its logarithm."""
    values = ratio * np.exp(spread * noise(random, MOST_ROUNDS))
    for count in range(MIN_ROUNDS, MOST_ROUNDS + 1):
        found = estimate(list(values[:count]))
        if found.width < PRECISION or found.is_clear:
            break
    return found


def main(tries=1000):
    for count in (6, 8, 10, 15, 30):
        random, shares = np.random.default_rng(0), []
        for noise in NOISES:
            covered = sum(
                not estimate(list(10 + noise(random, count))).excludes(10) for _ in range(tries)
            )
            shares.append(f"{noise.__name__} {covered / tries:.1%}")
        print(f"{count} values: {', '.join(shares)}", flush=True)
    for ratio in (1, 1.1, 1.2, 2):
        for spread in (0.02, 0.1):
            random, shares = np.random.default_rng(0), []
            for noise in NOISES:
                ends = [stopped(random, noise, ratio, spread) for _ in range(tries)]
                covered = sum(not end.excludes(ratio) for end in ends) / tries
                different = sum(end.excludes(1) for end in ends) / tries
                rounds = np.mean([end.count for end in ends])
                shares.append(
                    f"{noise.__name__} {covered:.1%} (different from 1: {different:.1%}, "
                    f"{rounds:.1f} rounds)"
                )
            print(f"ratio {ratio}, spread {spread:.0%}: {', '.join(shares)}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
