"""Show CPU and GPU utilisation while a framework trains, beside the figures of DATAmadness' post
(2019), with its model: a CNN of 58 million parameters on augmented pictures of 256 x 256.

The post trained on some 10,000 pictures: 480 s an epoch on a Ryzen 2700X, 75 s on an RTX 2080, and
watched the utilisation in the task manager.

    python scripts/cpu_and_gpu_utilisation.py [BATCHES]

BATCHES limits the epoch, which has 16 batches of 64 (default: 2).
"""

import sys

import crossbench
from crossbench.report.sections import usage

PUBLISHED_RATES = {"cpu": 10_000 / 480, "gpu": 10_000 / 75}  # pictures per second
PUBLISHED_MACHINES = {"cpu": "a Ryzen 2700X", "gpu": "an RTX 2080"}

batches = int([*sys.argv, 2][1])
try:
    comparison = crossbench.run(model="bignet", data="synthetic", batches=batches, rounds=3)
except crossbench.CrossbenchError as error:
    sys.exit(f"crossbench: {error}")
print(crossbench.table(comparison, details=True), end="\n\n")
print(usage(comparison), end="\n\n")
for result in comparison.results:
    if rate := comparison.examples_per_second(result):
        device = result.cell.device_type
        print(f"{result.name}: {rate:.3g} pictures per second; Keras in the post: "
              f"some {PUBLISHED_RATES[device]:.3g} on {PUBLISHED_MACHINES[device]}")  # fmt: skip
    if speedup := comparison.gpu_speedup(result):
        print(f"{result.name}: {speedup.median:.3g} times the CPU's speed; in the post: 6.4")
