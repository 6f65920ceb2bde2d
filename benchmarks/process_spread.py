"""Measure how much the speed of processes that do the very same work differs.

Run by hand: python benchmarks/process_spread.py [processes] [epochs] [threads]. All processes live
from the first epoch to the last, and their epochs of 200 synthetic pictures take turns, so that
drift of the machine affects all equally. With GLIBC_TUNABLES=glibc.malloc.hugetlb=1 the memory is
in huge pages.
"""

import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import correlation, median, stdev

from crossbench import models
from crossbench.data import synthetic
from crossbench.engine.assignment import Assignment, save_arrays
from crossbench.engine.process import WorkerProcess
from crossbench.workload import Job


def main(processes=8, epochs=60, threads=1):
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        save_arrays(synthetic.load_cifar10(0, train=200, test=10), Path(directory))
        job = Job(models.get("lenet"), "cpu", threads, "float32")
        task = Assignment("torch", job, Path(directory), 100, 2, 0)
        workers = [stack.enter_context(WorkerProcess(task, 600)) for _ in range(processes)]
        for worker in workers:
            worker.ask("start")
            worker.ask("epoch", 1, 0)
        seconds = {worker: [] for worker in workers}
        for epoch in range(1, 1 + epochs):
            for worker in random.Random(epoch).sample(workers, processes):
                seconds[worker].append(worker.ask("epoch", 1, epoch).wall_seconds)
    medians = [median(times) for times in seconds.values()]
    halves = [[median(times[i::2]) for times in seconds.values()] for i in (0, 1)]
    print("medians:", ", ".join(f"{value:.4f} s" for value in medians))
    print(f"their standard deviation: {stdev(medians) / median(medians):.1%}; "
          f"even against odd epochs, correlation {correlation(*halves):.2f}")  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
