"""Adapters of a third party, found by their entry points: the reference, gone wrong in some way."""

import os
import signal
import sys
import time

from crossbench.adapters.reference import ReferenceAdapter, ReferenceWorkload
from crossbench.workload import Unavailable


class Misbehaving(ReferenceAdapter):
    """in_training: called before each epoch. in_build: called instead of building, if given."""

    title = "misbehaving"

    def __init__(self, in_training=lambda: None, in_build=None):
        self.in_training, self.in_build = in_training, in_build

    def build(self, job):
        if self.in_build:
            self.in_build()
        workload = ReferenceWorkload(job)
        train_epoch = workload.train_epoch

        def misbehave():
            if job.dtype == "float32" and len(workload.batches) != 4:  # not in parity
                self.in_training()
            return train_epoch()

        workload.train_epoch = misbehave
        return workload


class Wrong(ReferenceAdapter):
    """Its kernels are flipped: nothing complains."""

    def build(self, job):
        workload = ReferenceWorkload(job)
        load = workload.load_weights
        workload.load_weights = lambda weights: load(
            {n: w[:, :, ::-1, ::-1] if w.ndim == 4 else w for n, w in weights.items()}
        )
        return workload


class Absent(ReferenceAdapter):
    def available(self, device):
        return "absent is not installed: pip install absent"


def die():
    sys.stderr.write("the last words\n")
    sys.stderr.flush()
    os._exit(7)


def vanish():
    raise Unavailable("it cannot be had: no network")


def raise_error():
    raise RuntimeError("out of luck\nsecond line")


def use_the_standard_streams():
    """As Julia does, which makes its standard input non-blocking."""
    os.set_blocking(0, False)
    print("noise " * 10_000)
    os.write(1, b"more noise\n")


WELL = Misbehaving()
DIES = Misbehaving(die)
KILLED = Misbehaving(lambda: os.kill(os.getpid(), signal.SIGKILL))
HANGS = Misbehaving(lambda: time.sleep(3600))
RAISES = Misbehaving(raise_error)
PRINTS = Misbehaving(use_the_standard_streams)
WRONG = Wrong()
ABSENT = Absent()
VANISHED = Misbehaving(in_build=vanish)
