"""Measure time and cost by the number of threads, beside minimaxir's table of cloud machines
(2017), with its model: Keras' CNN for CIFAR-10, on augmented pictures.

The post trained 20 epochs of 1,562 batches in TensorFlow: 3152, 1971, 1374 and 1449 s on 8, 16, 32
and 64 vCPUs (64 slower than 32), 775 s on a K80 and 562 s on a P100.

    python scripts/thread_and_cost_sweep.py [auto|synthetic|DIR] [PRICE] [BATCHES]

PRICE is the price per hour, as --price takes it; BATCHES limits the epoch (default: 40).
"""

import sys

import tabulate

import crossbench
from crossbench.host.machine import usable_cpus

PUBLISHED_SECONDS = {8: 3152, 16: 1971, 32: 1374, 64: 1449}
PUBLISHED_BATCHES = 20 * 1562

data, price, batches = [*sys.argv[1:], *["auto", "0.1/h", 40][len(sys.argv) - 1 :]]
cpus = len(usable_cpus())
threads = sorted({2**i for i in range(cpus.bit_length()) if 2**i <= cpus} | {cpus})
try:
    comparison = crossbench.run(
        model="cifar_cnn", data=data, threads=threads, price=price, batches=int(batches)
    )
except crossbench.CrossbenchError as error:
    sys.exit(f"crossbench: {error}")
print(comparison, end="\n\n")
print("the post: its CNN in TensorFlow, 20 epochs")
rows = [
    [n, s, 1000 * s / PUBLISHED_BATCHES, PUBLISHED_SECONDS[8] / s]
    for n, s in PUBLISHED_SECONDS.items()
]
print(
    tabulate.tabulate(rows, ["vCPUs", "seconds", "ms per batch", "speed-up over 8"], floatfmt=".2f")
)
