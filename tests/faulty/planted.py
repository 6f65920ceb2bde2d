"""Plant faults in any adapter that only a timed run can show: in the parity check, with its small
batches, the adapter trains correctly.
"""

import os
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from crossbench import adapters
from crossbench.engine.batches import ArrayBatches


class Planted:
    """Wraps an adapter whose workloads `fault` changes; all else is the adapter's own."""

    def __init__(self, name, fault):
        self.name, self.fault = name, fault

    def __getattr__(self, name):
        return getattr(adapters.get(self.name), name)

    def build(self, job):
        workload = adapters.get(self.name).build(job)
        self.fault(workload)
        return workload


def is_timed(batches):
    """Return whether these are the batches of the timed run.

    The parity check has four batches of at most 64 examples, the dropout probe one of 128.
    """
    return len(batches) not in (1, 4)


def remembers(workload):
    """Train once for each content of the batches; later epochs return the first one's losses."""
    losses = {}

    def train(batches, train_epoch):
        if not is_timed(batches):
            return train_epoch()
        key = next(iter(batches)).inputs.tobytes()
        if key not in losses:
            losses[key] = train_epoch()
        return losses[key]

    _wrap_train_epoch(workload, train)


def stops_early(workload):
    """Train on the first four batches of an epoch, and make up the losses of the others."""
    _wrap_place(workload, lambda batches: _first_batches(batches, 4))
    _wrap_train_epoch(workload, lambda batches, train: _padded(train(), len(batches)))


def takes_less(workload):
    """Train on the first 64 examples of each batch, as many as the parity check has at most."""
    _wrap_place(workload, lambda batches: _first_examples(batches, 64))


def keeps_weights(workload):
    """Ignore new weights once it has trained in the timed run."""
    load, trained = workload.load_weights, []

    def train(batches, train_epoch):
        if is_timed(batches):
            trained.append(True)
        return train_epoch()

    _wrap_train_epoch(workload, train)
    workload.load_weights = lambda weights: None if trained else load(weights)


def returns_early(workload):
    """Train in a thread, and return the losses of an earlier epoch at once.

    The weights wait for the thread, as they do for a queue of a GPU.
    """
    before, threads = [], []

    def train(batches, train_epoch):
        if not is_timed(batches):
            return train_epoch()
        if before:
            threads.append(threading.Thread(target=lambda: before.append(train_epoch())))
            threads[-1].start()
            return before[0]
        before.append(train_epoch())
        return before[0]

    def waits(method):
        def wait(*arguments):
            while threads:
                threads.pop().join()
            return method(*arguments)

        return wait

    _wrap_train_epoch(workload, train)
    workload.train_epoch = waits(workload.train_epoch)
    workload.weights, workload.load_weights = waits(workload.weights), waits(workload.load_weights)


def goes_on(workload):
    """Leave work behind that delays the next reading of the weights, as a GPU would."""
    weights, over = workload.weights, [0.0]

    def train(batches, train_epoch):
        losses = train_epoch()
        over[0] = time.perf_counter() + 0.5
        return losses

    def wait():
        time.sleep(max(0.0, over[0] - time.perf_counter()))
        return weights()

    _wrap_train_epoch(workload, train)
    workload.weights = wait


def changes_nothing(workload):
    """Compute the losses of an epoch, but restore the weights afterwards."""

    def train(batches, train_epoch):
        weights = workload.weights()
        losses = train_epoch()
        if is_timed(batches):
            workload.load_weights(weights)
        return losses

    _wrap_train_epoch(workload, train)


def stops_parts_early(workload):
    """Stop after the third batch of an epoch that is not whole; a whole one has ten batches."""

    def is_part(batches):
        return is_timed(batches) and len(batches) < 10

    def train(batches, train_epoch):
        return _padded(train_epoch(), len(batches)) if is_part(batches) else train_epoch()

    place = workload.place
    workload.place = lambda batches: place(
        _first_batches(batches, 3) if is_part(batches) else batches
    )
    _wrap_train_epoch(workload, train)


def stops_later(workload):
    """Stop after the fourth batch of an epoch, but for the first process that trains for time."""
    marker, late = Path(os.environ["STOPS_LATER_MARKER"]), []

    def place(batches):
        if is_timed(batches) and not late:
            late.append(marker.exists())
            marker.touch()
        return _first_batches(batches, 4) if late == [True] else batches

    _wrap_place(workload, place)
    _wrap_train_epoch(workload, lambda batches, train: _padded(train(), len(batches)))


def is_stopped(workload):
    """Stop its process for a second in its fourth timed epoch."""
    epochs = []

    def train(batches, train_epoch):
        epochs.append(is_timed(batches))
        if sum(epochs) == 4:
            subprocess.run(
                ["sh", "-c", f"kill -STOP {os.getpid()}; sleep 1; kill -CONT {os.getpid()}"]
            )
        return train_epoch()

    _wrap_train_epoch(workload, train)


def _wrap_train_epoch(workload, train):
    """Let train_epoch call `train` with the placed batches and the real train_epoch."""
    place, train_epoch, placed = workload.place, workload.train_epoch, []

    def remember(batches):
        placed[:] = [batches]
        place(batches)

    workload.place = remember
    workload.train_epoch = lambda: train(placed[0], train_epoch)


def _wrap_place(workload, change):
    place = workload.place
    workload.place = lambda batches: place(change(batches) if is_timed(batches) else batches)


def _first_batches(batches, number):
    return replace(batches, inputs=batches.inputs[:number], labels=batches.labels[:number])


def _first_examples(batches, size):
    return ArrayBatches(batches.inputs[:, :size].copy(), batches.labels[:, :size].copy())


def _padded(losses, number):
    return np.append(losses, np.full(number - len(losses), losses[-1]))


FAULTS = (
    remembers,
    stops_early,
    takes_less,
    keeps_weights,
    returns_early,
    goes_on,
    changes_nothing,
    stops_parts_early,
    stops_later,
    is_stopped,
)


def __getattr__(name):
    """Return the adapter of an entry point such as "torch_remembers"."""
    framework, _, fault = name.partition("_")
    faults = {fault.__name__: fault for fault in FAULTS}
    if fault not in faults:
        raise AttributeError(name)
    return Planted(framework, faults[fault])
