"""CPU and GPU in use while a framework trains, beside the figures of DATAmadness' post.

The post trained a CNN of 58 million parameters on pictures of 256 x 256: 480 s an epoch on a
Ryzen 2700X, 75 s on an RTX 2080, and watched the utilisation in the task manager.

    python scripts/utilisation.py [auto|synthetic|DIR]
"""

import sys

import crossbench
from crossbench.report.sections import usage

PUBLISHED = {"cpu": "480 s on a Ryzen 2700X", "gpu": "75 s on an RTX 2080"}

comparison = crossbench.run(model="lenet", data=[*sys.argv, "auto"][1])
print(crossbench.table(comparison), end="\n\n")
print(usage(comparison), end="\n\n")
for result in comparison.results:
    if speedup := comparison.gpu_speedup(result):
        print(f"{result.name}: {speedup.median:.3g} times the CPU's speed; in the post: 6.4")
    elif steady := comparison.steady(result):
        published = PUBLISHED[result.cell.device]
        print(f"{result.name}: {steady.median:.3g} s an epoch of the LeNet; in the post, of a "
              f"CNN of 58 million parameters: {published}")  # fmt: skip
