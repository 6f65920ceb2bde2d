"""Measure what the sampler costs the worker that it watches: rounds of torch with and without it.

Run by hand: python benchmarks/sampler_cost.py DIR [rounds]. DIR holds files of CIFAR-10's binary
version. A ratio of 1 is no cost.
"""

import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from crossbench import data, models
from crossbench.data.sources import CIFAR10
from crossbench.engine.assignment import Assignment, save_arrays
from crossbench.engine.process import WorkerProcess
from crossbench.engine.sampler import Sampler
from crossbench.host.machine import usable_cpus
from crossbench.results.statistics import estimate
from crossbench.workload import Job


def main(directory, rounds=40):
    with tempfile.TemporaryDirectory() as arrays:
        save_arrays(data.load(CIFAR10(), directory, 0), Path(arrays))
        job = Job(models.get("lenet"), "cpu", len(usable_cpus()), "float32")
        ratios, cores = [], []
        with WorkerProcess(
            Assignment("torch", job, Path(arrays), 1000, 10, 0), timeout=600
        ) as worker:
            worker.ask("start")
            worker.ask("epoch", 0, 0)
            for number in range(1, rounds + 1):
                seconds = {}
                for watched in (True, False) if number % 2 else (False, True):
                    sampler = Sampler(worker.process.pid) if watched else nullcontext()
                    with sampler:
                        epoch = worker.ask("epoch", number, 1)
                    seconds[watched] = epoch.wall_seconds
                    if watched:
                        cores.append(sampler.usage(epoch).sampler_cores)
                ratios.append(seconds[True] / seconds[False])
    ratio = estimate(ratios)
    print(f"with / without the sampler, {rounds} paired rounds: {ratio.median:.4f} "
          f"({ratio.low:.4f}-{ratio.high:.4f})")  # fmt: skip
    print(f"the sampler's own CPU time: {estimate(cores).median:.2%} of a core")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
