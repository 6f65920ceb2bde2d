"""Count how often equal adapters are called different, and how often slower ones are found.

Run by hand: GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python benchmarks/same_against_same.py [tries]
[first seed]. Each try is two runs of crossbench on a quiet machine, of the MLP: torch, torch
again, and torch made slower; both others are compared with the first. By default the rounds end
when it is decided who is faster, and the slower one takes 20 % longer; with a precision of 2 % it
takes 3 % longer. Then torch and torch again beside a process that keeps their CPU busy. The MLP
computes matrix multiplications and little else: of the LeNet, where its memory happens to lie
makes one process some per cent faster than another (benchmarks/process_spread.py), and 3 % would
take hundreds of rounds to find.
"""

import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path

import crossbench
from crossbench.host.machine import usable_cpus
from crossbench.report.remarks import remarks

PLUGIN = """
import time
from crossbench.adapters.torch import TorchAdapter


class Equal(TorchAdapter):
    title = "torch again"


class Slow(TorchAdapter):
    def __init__(self, share):
        self.title, self.share = f"torch slowed by {share:.0%}", share

    def build(self, job):
        workload = super().build(job)
        train_epoch = workload.train_epoch

        def slowed():
            start = time.perf_counter()
            losses = train_epoch()
            end = time.perf_counter() + self.share * (time.perf_counter() - start)
            while time.perf_counter() < end:
                pass
            return losses

        workload.train_epoch = slowed
        return workload


EQUAL, SLOW, SLOWER = Equal(), Slow(0.03), Slow(0.2)
"""
ENTRY_POINTS = (
    "[crossbench.adapters]\nequal = planted:EQUAL\nslow = planted:SLOW\nslower = planted:SLOWER\n"
)
ASKED = {
    "model": "mnist_mlp", "data": "synthetic", "batch_size": 100, "batches": 20,
    "epochs": 3, "threads": 1,
}  # fmt: skip


def install(directory):
    """Install the planted adapters as a package, for this process and its worker processes."""
    (directory / "planted.py").write_text(PLUGIN)
    info = directory / "planted-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    sys.path.insert(0, str(directory))


@contextmanager
def competitor():
    """Keep the CPU busy that crossbench uses for one thread."""
    cpu = usable_cpus()[0]
    spin = f"import os\nos.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", spin])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def count_verdicts(words, seeds, frameworks, beside, **asked):
    """Run crossbench once per seed, print what each table says, and count the verdicts."""
    verdicts = {name: [] for name in frameworks}
    for seed in seeds:
        with beside():
            comparison = crossbench.run(
                ["torch", *frameworks], ["cpu"], seed=seed, baseline="torch", **ASKED, **asked
            )
        warned = any(
            "other processes used" in r for r in remarks(comparison, comparison.results[0])
        )
        for result in comparison.results[1:]:
            ratio = comparison.ratio(result)
            slower = "slower" if ratio.median > 1 else "faster"
            verdict = slower if ratio.excludes(1) else "not significant"
            verdicts[result.cell.framework].append(verdict)
            print(f"{words}, seed {seed}: {result.name} {ratio.median:.4f} ({ratio.low:.4f}-"
                  f"{ratio.high:.4f}), {ratio.count} rounds: {verdict}"
                  f"{', other processes are named' * warned}", flush=True)  # fmt: skip
    for name, of_all in verdicts.items():
        print(f"{words}: {name}, {len(of_all)} tries: {dict(Counter(of_all))}", flush=True)


def main(count=20, first=0):
    with tempfile.TemporaryDirectory() as directory:
        install(Path(directory))
        seeds = range(first, first + count)
        count_verdicts("decided", seeds, ["equal", "slower"], nullcontext)
        count_verdicts("precision 2 %", seeds, ["equal", "slow"], nullcontext, precision=0.02)
        count_verdicts("beside another process", seeds, ["equal"], competitor)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
