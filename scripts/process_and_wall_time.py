"""Measure process and wall time of four calls, the first with compilation: the table of
hideyukiinada's benchmark1 (2019), with its model: a residual network of 63 convolutions, on one
batch of 64.

The post's figures are those of its first run on each device: the first call, and the median of the
three after it.

    python scripts/process_and_wall_time.py [auto|synthetic|DIR]
"""

import sys

import tabulate

import crossbench

PUBLISHED = [
    ["Keras in the post", "gpu, GTX 1080", 15.327, 15.410, 0.1785, 0.1828],
    ["Keras in the post", "cpu, i5-7500", 23.041, 48.274, 9.324, 34.322],
]
HEADERS = ["", "device", "1st wall s", "1st process s", "later wall s", "later process s"]

data = [*sys.argv, "auto"][1]
try:
    comparison = crossbench.run(model="resnet63", data=data, rounds=1, epochs=3)
except crossbench.CrossbenchError as error:
    sys.exit(f"crossbench: {error}")
rows = []
for result in comparison.results:
    first, wall = comparison.first_epoch(result), comparison.steady(result)
    if first and wall:
        cpu = comparison.steady(result, "cpu_seconds").median
        first_cpu = comparison.first_epoch(result, "cpu_seconds").median
        times = [first.median, first_cpu, wall.median, cpu]
        rows.append([result.cell.title, result.cell.device, *times])
print(comparison, end="\n\n")
print(tabulate.tabulate(rows + PUBLISHED, HEADERS, floatfmt=".3g"))
