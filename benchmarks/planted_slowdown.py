"""Is a slowdown of 3 % found, and are two equal runs not called different? The counts.

Run by hand: python benchmarks/planted_slowdown.py DIR [tries] [rounds]. Each try is a run of
crossbench with two adapters: torch against torch, or torch against torch made slower by 3 %, on
one batch of 1,000. DIR: files of CIFAR-10's binary version.
"""

import sys
import tempfile
from pathlib import Path

import crossbench

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
RECORD = 1 + 3 * 32 * 32
ENTRY_POINTS = "[crossbench.adapters]\nequal = planted:EQUAL\nslow = planted:SLOW\n"


def install(directory):
    """As a third party's package would be, for this process and the workers."""
    (directory / "planted.py").write_text(PLUGIN)
    info = directory / "planted-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    sys.path.insert(0, str(directory))


def shorten(source, directory):
    """The first 200 pictures of every file."""
    directory.mkdir()
    for file in Path(source).glob("*.bin"):
        (directory / file.name).write_bytes(file.read_bytes()[: 200 * RECORD])
    return directory


def main(source, tries=20, rounds=40):
    with tempfile.TemporaryDirectory() as directory:
        install(Path(directory))
        data = shorten(source, Path(directory) / "data")
        for other in ("equal", "slow"):
            verdicts = []
            for seed in range(tries):
                comparison = crossbench.run(
                    ["torch", other], ["cpu"], data=data, rounds=rounds, seed=seed,
                    baseline="torch",
                )  # fmt: skip
                ratio = comparison.ratio(comparison.results[1])
                verdicts.append(ratio.excludes(1) and ("slower" if ratio.median > 1 else "faster"))
                print(f"{other} {seed}: {ratio.median:.4f} ({ratio.low:.4f}-{ratio.high:.4f}) "
                      f"{verdicts[-1] or 'no difference shown'}", flush=True)  # fmt: skip
            print(f"{other}: of {tries} tries {verdicts.count('slower')} slower, "
                  f"{verdicts.count('faster')} faster, "
                  f"{verdicts.count(False)} no difference shown", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
