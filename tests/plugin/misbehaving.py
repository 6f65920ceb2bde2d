"""Define third-party adapters with entry points: the reference, each with its own misbehaviour."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import psutil

from crossbench.adapters.reference import (
    NumpyArrays,
    ReferenceAdapter,
    ReferenceWorkload,
    rounded,
)
from crossbench.inputs.names import TF32
from crossbench.models import MaxPool
from crossbench.workload import Unavailable, Workload


class Misbehaving(ReferenceAdapter):
    """Calls `in_training` before each timed epoch, and `in_build` before it builds, if given."""

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
        workload.arrays = out_of_memory  # a peak takes seconds
        return workload


class Changed(ReferenceAdapter):
    """Builds the reference's workload, changed by a function of it and the job."""

    title = "changed"

    def __init__(self, change):
        self.change = change

    def build(self, job):
        workload = ReferenceWorkload(job)
        workload.arrays = out_of_memory  # a peak takes seconds
        self.change(workload, job)
        return workload


def overriding(**methods):
    """Return an adapter with other methods of the workload."""
    return Changed(lambda workload, _: vars(workload).update(methods))


class Wrong(ReferenceAdapter):
    """Flips the convolution kernels, which raises no error."""

    def build(self, job):
        workload = ReferenceWorkload(job)
        load = workload.load_weights
        workload.load_weights = lambda weights: load(
            {n: w[:, :, ::-1, ::-1] if w.ndim == 4 else w for n, w in weights.items()}
        )
        return workload


class OnGpu(ReferenceAdapter):
    """Claims to run on a GPU, which NumPy does not, to test what the engine does there."""

    title = "on a GPU"

    def available(self, device):
        return None

    def build(self, job):
        return ReferenceWorkload(job)


class Rounding(OnGpu):
    """Rounds the operands of matrix multiplications and convolutions to TensorFloat-32."""

    def build(self, job):
        workload = super().build(job)
        load = workload.load_weights
        if job.dtype == "float32":
            workload.load_weights = lambda w: load({n: rounded(a, TF32) for n, a in w.items()})
        return workload


class IdleArrays(NumpyArrays):
    """Returns the matrix that it is given to write to."""

    def multiply(self, a, b, into):
        return into


def limit_memory(workload, _):
    """Limit the process to 1 MiB more when the peak is measured, so that the copy fails."""

    def limited():
        taken = psutil.Process().memory_info().vms + 2**20
        resource.setrlimit(resource.RLIMIT_AS, (taken, taken))
        return NumpyArrays()

    workload.arrays = limited


def at_pool(backward):
    """Return an adapter that replaces `backward_epoch` for models with a max-pool.

    backward: takes the method and the job, and returns what the replacement returns.
    """

    def change(workload, job):
        right = workload.backward_epoch
        if any(isinstance(named.layer, MaxPool) for named in job.model.all_layers()):
            workload.backward_epoch = lambda: backward(right, job)

    return Changed(change)


def sleep_before(backward, job):
    """Sleep 0.05 s where it is timed."""
    if job.dtype == "float32":
        time.sleep(0.05)
    return backward()


def doubled(backward, job):
    gradients = {name: 2 * array for name, array in backward()().items()}
    return lambda: gradients


def doubled_where_timed(backward, job):
    return doubled(backward, job) if job.dtype == "float32" else backward()


def changing(backward, job):
    """Return gradients that change when they are fetched."""
    fetch = backward()
    gradients = {name: array.copy() for name, array in fetch().items()}

    def changed():
        for array in gradients.values():
            array += 1
        return {name: array.copy() for name, array in gradients.items()}

    return fetch if job.dtype == "float64" else changed


def slow_first_fetch(backward, job, fetched=set()):  # noqa: B006, it remembers the models
    """Take long to fetch the gradients of a model for the first time, as what compiles does."""
    fetch = backward()

    def slow():
        if job.model not in fetched:
            fetched.add(job.model)
            time.sleep(0.3)
        return fetch()

    return slow


def goes_on(backward, job):
    """Return before the gradients are there, in each call."""
    return there_after(0.3, backward())


def there_after(seconds, fetch):
    """Return a fetch that waits until so many seconds are over from now on."""
    end = time.perf_counter() + seconds

    def wait():
        time.sleep(max(0.0, end - time.perf_counter()))
        return fetch()

    return wait


class Installed(ReferenceAdapter):
    """Has something to install, and logs in a file when it installs and builds."""

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


class WithEnvironment(OnGpu):
    """Suggests one environment variable, requires another, and reports them in its details."""

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
    raise Unavailable("it is not available: no network")


def raise_error():
    raise RuntimeError("out of luck\nsecond line")


def out_of_memory(size=0):
    raise MemoryError("768 MiB wanted")


def use_the_standard_streams():
    """Print, and make the standard input non-blocking, as Julia does."""
    os.set_blocking(0, False)
    print("noise " * 10_000)
    os.write(1, b"more noise\n")


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Final(BaseException):
    pass


def raises(error):
    def fail():
        raise error

    return Misbehaving(fail)


def write_to_every_pipe(content):
    """Write to every open file descriptor; the connection to the parent is one of them."""
    for number in range(100):
        with suppress(OSError):
            os.write(number, content)


def close_everything():
    os.closerange(0, 100)


def truncate_a_reply():
    write_to_every_pipe((1000).to_bytes(4) + b"the beginning")
    os._exit(5)


def live_on_without_a_connection():
    close_everything()
    time.sleep(3600)


def die_with_a_child():
    """Exit and leave a child that holds the connection to the parent open, in another session."""
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(3600)
    with open(os.environ["CROSSBENCH_TEST_NOTES"], "w") as file:
        file.write(f"{child}")
    os._exit(7)


def return_twice():
    os.fork()


def leave_a_child():
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    with open(os.environ["CROSSBENCH_TEST_NOTES"], "a") as file:
        file.write(f"{child.pid}\n")


def meddle():
    """Change all state that a process shares, and print from a thread meanwhile."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.chdir("/")
    threading.Thread(target=lambda: [print("noise") for _ in range(1000)], daemon=True).start()
    os.environ.clear()


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
INSTALLED = Installed()
PARTICULAR = WithEnvironment()
VANISHED = Misbehaving(in_build=vanish)

EXITS = Misbehaving(lambda: sys.exit(3))
EXITS_WELL = Misbehaving(lambda: os._exit(0))
INTERRUPTS = raises(KeyboardInterrupt())
FINAL = raises(Final("the end"))
SILENT = raises(Silent())
COLOURS = raises(RuntimeError("red \x1b[31mink\x07 and \udc80\nsecond line"))
GARBAGE = Misbehaving(lambda: write_to_every_pipe(b"garbage for the parent"))
SHORT_GARBAGE = Misbehaving(lambda: write_to_every_pipe((4).to_bytes(4) + b"oops"))
CLOSES = Misbehaving(close_everything)
FORKS = Misbehaving(return_twice)
LEAVES_A_CHILD = Misbehaving(leave_a_child)
MEDDLES = Misbehaving(meddle)
NO_WORK = overriding(arrays=IdleArrays)
NO_LOSSES = overriding(train_epoch=lambda: np.array([]))
DETAILS_OF_LINES = overriding(details=lambda: {"a\nb": "c\x1b[31md\udc80"})
ALLOCATES = overriding(allocated=lambda: 3 * 2**20)
CUTS = Misbehaving(truncate_a_reply)
LIVES_ON = Misbehaving(live_on_without_a_connection)
DIES_WITH_A_CHILD = Misbehaving(die_with_a_child)
SHORT_OF_MEMORY = Changed(limit_memory)
SLOW_POOL = at_pool(sleep_before)
WRONG_POOL = at_pool(doubled)
WRONG_TIMED_POOL = at_pool(doubled_where_timed)
CHANGING_POOL = at_pool(changing)
SLOW_FIRST_FETCH = at_pool(slow_first_fetch)
GOES_ON_AT_POOL = at_pool(goes_on)
DIES_AT_POOL = at_pool(lambda *_: die())
NO_BACKWARD = overriding(backward_epoch=lambda: Workload.backward_epoch(None))
RAISES_AT_POOL = at_pool(lambda *_: raise_error())

for _adapter in (DIES, HANGS, DIES_AT_POOL, SHORT_OF_MEMORY, PRINTS, MEDDLES):
    _adapter.needs_a_process = True
