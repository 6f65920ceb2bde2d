"""Repeat the table of the Flux.jl post of 2021: one epoch of the LeNet on CIFAR-10, CPU and GPU.

The post timed 50 batches of 1,000 after a warm-up: 82.47 s on an i7-7500U (2 cores) and 0.829 s
on a GTX 1080.

    python scripts/flux_post.py [auto|synthetic|DIR]
"""

import sys

import crossbench

PUBLISHED = {"cpu": "82.47 s on an i7-7500U", "gpu": "0.829 s on a GTX 1080"}

try:
    comparison = crossbench.run(model="lenet", data=[*sys.argv, "auto"][1])
except crossbench.CrossbenchError as error:
    sys.exit(f"crossbench: {error}")
print(comparison, end="\n\n")
for result in comparison.results:
    if steady := comparison.steady(result):
        published = PUBLISHED[result.cell.device_type]
        print(f"{result.name}: {steady.median:.3g} s an epoch; Flux.jl in the post: {published}")
