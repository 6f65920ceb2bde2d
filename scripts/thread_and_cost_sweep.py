"""Time and cost by the number of threads, beside minimaxir's table of cloud machines.

The post trained a CNN for 20 epochs of CIFAR-10 in TensorFlow: 3152, 1971, 1374 and 1449 s on 8,
16, 32 and 64 vCPUs (64 slower than 32), 775 s on a K80 and 562 s on a P100.

    python scripts/thread_and_cost_sweep.py [auto|synthetic|DIR] [PRICE]

PRICE is of an hour, as --price takes it.
"""

import sys

import tabulate

import crossbench
from crossbench.machine import usable_cpus

PUBLISHED = {8: 3152, 16: 1971, 32: 1374, 64: 1449}

data, price = [*sys.argv[1:], *["auto", "0.1/h"][len(sys.argv) - 1 :]]
cpus = len(usable_cpus())
threads = sorted({2**i for i in range(cpus.bit_length()) if 2**i <= cpus} | {cpus})
comparison = crossbench.run(model="lenet", data=data, threads=threads, price=price)
print(crossbench.table(comparison), end="\n\n")
print("the post: 20 epochs of its CNN in TensorFlow")
rows = [[n, seconds, PUBLISHED[8] / seconds] for n, seconds in PUBLISHED.items()]
print(tabulate.tabulate(rows, ["vCPUs", "seconds", "speed-up over 8"], floatfmt=".2f"))
