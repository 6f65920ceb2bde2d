"""Process and wall time of four calls, the first with compilation: the table of hideyukiinada's
benchmark1, for one epoch of the LeNet.

The post trained a ResNet of 63 convolutions on one batch of 64, four times: 9.30 s of wall time
and 34.4 s of process time on an i5-7500, 0.178 s on a GTX 1080; the first calls took 23.0 and
15.3 s. Another model, so compare the ratios: first to later calls, process to wall time.

    python scripts/process_and_wall_time.py [auto|synthetic|DIR]
"""

import sys

import tabulate

import crossbench

PUBLISHED = [
    ["the post's ResNet", "cpu, i5-7500", 23.0, None, 9.30, 34.4],
    ["the post's ResNet", "gpu, GTX 1080", 15.3, None, 0.178, None],
]
HEADERS = ["", "device", "1st wall s", "1st process s", "later wall s", "later process s"]

comparison = crossbench.run(model="lenet", data=[*sys.argv, "auto"][1], rounds=3)
rows = []
for result in comparison.results:
    first, wall = comparison.first_epoch(result), comparison.steady(result)
    if first and wall:
        cpu = comparison.steady(result, "cpu_seconds").median
        first_cpu = comparison.first_epoch(result, "cpu_seconds").median
        times = [first.median, first_cpu, wall.median, cpu]
        rows.append([result.cell.title, result.cell.device, *times])
print(crossbench.table(comparison), end="\n\n")
print(tabulate.tabulate(rows + PUBLISHED, HEADERS, floatfmt=".3g", missingval="not given"))
