"""Measure what a page fault costs, and what it depends on.

Takes GIGABYTES of new memory, one after the other, touches each page, and prints the kernel's
microseconds for a fault by gigabyte; gives all of it back, pauses, and takes it again. On a virtual
machine the host may get free memory back meanwhile: the next one to touch it waits for the host.
Run by hand, with nothing else running: python benchmarks/fault_cost.py [GIGABYTES] [PAUSE,...]
"""

import mmap
import resource
import sys
import time

GIGABYTE = 2**30


def touched():
    """Return a gigabyte of new memory, and the kernel's microseconds for a page fault in it."""
    memory = mmap.mmap(-1, GIGABYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    before = resource.getrusage(resource.RUSAGE_SELF)
    for page in range(0, GIGABYTE, resource.getpagesize()):
        memory[page] = 1
    after = resource.getrusage(resource.RUSAGE_SELF)
    faults = after.ru_minflt - before.ru_minflt
    return memory, 1e6 * (after.ru_stime - before.ru_stime) / faults


def main(gigabytes="4", pauses="0,0,30,0"):
    for pause in pauses.split(","):
        time.sleep(float(pause))
        taken = [touched() for _ in range(int(gigabytes))]
        costs = " ".join(f"{cost:.2f}" for _, cost in taken)
        print(f"after {pause} s: {costs} µs for a fault, by gigabyte", flush=True)
        for memory, _ in taken:
            memory.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
