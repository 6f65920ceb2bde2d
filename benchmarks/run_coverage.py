"""Measure how often the intervals of one run cover the medians of the next.

Runs one command again and again, with a pause between, and prints the ratio of each row to the
first framework's by run; then the share of pairs of runs, and of runs that follow one another, in
which the interval of the one covers the median of the other. Run by hand, for hours:
python benchmarks/run_coverage.py RUNS PAUSE_SECONDS FRAMEWORKS [ARGUMENT=VALUE ...]
such as 12 600 torch,jax model=lenet batches=10 rounds=6
"""

import sys
import time
from itertools import pairwise, permutations

import crossbench


def main(runs, pause, frameworks, *arguments):
    keywords = dict(argument.split("=", 1) for argument in arguments)
    for name in ("batches", "rounds", "threads"):
        if name in keywords:
            keywords[name] = int(keywords[name])
    base = frameworks.split(",")[0]
    found: dict[str, list] = {}
    for run in range(int(runs)):
        if run:
            time.sleep(float(pause))
        comparison = crossbench.run(frameworks, "cpu", data="synthetic", baseline=base, **keywords)
        for row in comparison.results:
            if (ratio := comparison.ratio(row)) and comparison.base(row) is not row:
                found.setdefault(row.name, []).append(ratio)
                interval = f"({ratio.low:.3g}-{ratio.high:.3g})" if ratio.low else "(no interval)"
                print(f"{run + 1}: {row.name} {ratio.median:.3g} {interval}", flush=True)
    for what, pairs in (
        ("any two runs", [p for ratios in found.values() for p in permutations(ratios, 2)]),
        ("a run and the next", [p for ratios in found.values() for p in pairwise(ratios)]),
    ):
        covered = [one.low <= other.median <= one.high for one, other in pairs if one.low]
        if covered:
            print(f"{what}: {sum(covered)} of {len(covered)} medians are in the interval")


if __name__ == "__main__":
    main(*sys.argv[1:])
