"""Adapters of a third party, found by their entry points: the reference, gone wrong in some way."""

import os
import signal
import sys
import time

import numpy as np

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


class OnGpu(ReferenceAdapter):
    """Says that it runs on a GPU, which NumPy does not: for what the engine does there."""

    title = "on a GPU"

    def available(self, device):
        return None

    def build(self, job):
        workload = ReferenceWorkload(job)
        product, copy = workload.matrix_product, workload.copy
        workload.matrix_product = lambda size: product(64)  # a GPU's would take NumPy minutes
        workload.copy = lambda size: copy(4096)
        return workload


class Rounding(OnGpu):
    """Its matrix products and convolutions take their operands in TensorFloat-32."""

    def build(self, job):
        workload = super().build(job)
        load = workload.load_weights
        workload.load_weights = lambda weights: load({n: rounded(w) for n, w in weights.items()})
        return workload


def rounded(array):
    """float32 to the 10 bits of mantissa that TensorFloat-32 keeps; float64 as it is."""
    if array.dtype != np.float32:
        return array
    bits = np.ascontiguousarray(array).view(np.int32)
    return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(np.float32)


class WithoutPeak(OnGpu):
    """There is no memory for the matrices of the peak, or the process dies of them."""

    def __init__(self, fail):
        self.fail = fail

    def build(self, job):
        workload = super().build(job)
        workload.matrix_product = lambda size: self.fail()
        return workload


class Installed(ReferenceAdapter):
    """Has something to install, and writes down in a file when it does what."""

    title = "installed"

    def to_install(self, device):
        return "installing a lot"

    def install(self, device):
        time.sleep(0.5)
        self.note("install")

    def build(self, job):
        self.note("build")
        return super().build(job)

    def note(self, what):
        with open(os.environ["CROSSBENCH_TEST_NOTES"], "a") as file:
            file.write(f"{what}\n")


class Particular(OnGpu):
    """Would like some variables, and needs others; they are in its details."""

    def environment(self, device, threads):
        return {"CROSSBENCH_TEST_LIKES": "adapter"}

    def required_environment(self, device):
        return {"CROSSBENCH_TEST_NEEDS": f"adapter on {device}"}

    def build(self, job):
        workload = super().build(job)
        names = ("CROSSBENCH_TEST", "CUDA_", "NVIDIA_")
        found = {n: v for n, v in os.environ.items() if n.startswith(names)}
        workload.details = lambda: found
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


def out_of_memory():
    raise MemoryError("768 MiB wanted")


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
RUNS_ON_GPU = OnGpu()
ROUNDS = Rounding()
NO_PEAK = WithoutPeak(out_of_memory)
DIES_AT_PEAK = WithoutPeak(die)
INSTALLED = Installed()
PARTICULAR = Particular()
VANISHED = Misbehaving(in_build=vanish)
