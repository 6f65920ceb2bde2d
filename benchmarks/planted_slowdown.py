"""Is a slowdown of 3 % found, and are two equal adapters not called different? The counts.

Run by hand: GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python benchmarks/planted_slowdown.py
[tries] [rounds] [epochs] [threads] [first seed]. Each try is a run of crossbench on 100 synthetic
pictures with three adapters: torch, torch again, and torch made slower by 3 %; both others are
compared with the first. Without huge pages, where its memory happens to lie makes one torch process
4 % faster than another (benchmarks/process_spread.py), and 3 % would take hours to find.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

import crossbench
from crossbench.data import synthetic

PLUGIN = """
import time
from crossbench.adapters.torch import TorchAdapter


class Equal(TorchAdapter):
    title = "torch again"


class Slow(TorchAdapter):
    title = "torch slowed"

    def build(self, job):
        workload = super().build(job)
        train_epoch = workload.train_epoch

        def slowed():
            start = time.perf_counter()
            losses = train_epoch()
            end = time.perf_counter() + 0.03 * (time.perf_counter() - start)
            while time.perf_counter() < end:
                pass
            return losses

        workload.train_epoch = slowed
        return workload


EQUAL, SLOW = Equal(), Slow()
"""
ENTRY_POINTS = "[crossbench.adapters]\nequal = planted:EQUAL\nslow = planted:SLOW\n"


def install(directory):
    """As a third party's package would be, for this process and the workers."""
    (directory / "planted.py").write_text(PLUGIN)
    info = directory / "planted-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    sys.path.insert(0, str(directory))


def pictures(directory):
    """100 to train on and 20 to test on, as files of CIFAR-10's binary version."""
    directory.mkdir()
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    for seed, name in enumerate(names):
        split = synthetic.split(20, np.random.default_rng(seed))
        records = np.column_stack([split.labels, split.inputs.reshape(20, -1)])
        (directory / name).write_bytes(records.tobytes())
    return directory


def main(tries=20, rounds=8, epochs=80, threads=1, first=0):
    verdicts = {"equal": [], "slow": []}
    with tempfile.TemporaryDirectory() as directory:
        install(Path(directory))
        data = pictures(Path(directory) / "data")
        for seed in range(first, first + tries):
            comparison = crossbench.run(
                ["torch", *verdicts], ["cpu"], data=data, batch_size=100, rounds=rounds,
                epochs=epochs, threads=threads, seed=seed, baseline="torch",
            )  # fmt: skip
            for result in comparison.results[1:]:
                ratio = comparison.ratio(result)
                slower = "slower" if ratio.median > 1 else "faster"
                verdict = slower if ratio.excludes(1) else "no difference shown"
                verdicts[result.cell.framework].append(verdict)
                print(f"{seed}: {result.name} {ratio.median:.4f} "
                      f"({ratio.low:.4f}-{ratio.high:.4f}) {verdict}", flush=True)  # fmt: skip
    for name, of_all in verdicts.items():
        print(f"{name}, {tries} tries:", dict(Counter(of_all)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
