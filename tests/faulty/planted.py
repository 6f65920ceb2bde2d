"""Faults that only a timed run can show, planted in any adapter: the proof's small batches are
trained on as they should be.
"""

import os
import subprocess
import threading
import time
from dataclasses import replace

import numpy as np

from crossbench import adapters
from crossbench.engine.batches import ArrayBatches


class Planted:
    """An adapter whose workloads are changed by `fault`; all else is the adapter's own."""

    def __init__(self, name, fault):
        self.name, self.fault = name, fault

    def __getattr__(self, name):
        return getattr(adapters.get(self.name), name)

    def build(self, job):
        workload = adapters.get(self.name).build(job)
        self.fault(workload)
        return workload


def is_timed(batches):
    """The proof has four batches of at most 64, the probe of the dropouts one of 128."""
    return len(batches) not in (1, 4)


def remembers(workload):
    """Works once for each contents: later epochs return what the first one gave."""
    given = {}

    def train(batches, train_epoch):
        if not is_timed(batches):
            return train_epoch()
        key = next(iter(batches)).inputs.tobytes()
        if key not in given:
            given[key] = train_epoch()
        return given[key]

    _train_by(workload, train)


def stops_early(workload):
    """Trains on an epoch's first batches, and makes up the losses of the others."""
    _place_by(workload, lambda batches: _first(batches, 4))
    _train_by(workload, lambda batches, train: _filled(train(), len(batches)))


def takes_less(workload):
    """Trains on the first 64 examples of each batch, as many as the proof has."""
    _place_by(workload, lambda batches: _cut(batches, 64))


def keeps_weights(workload):
    """Takes no other weights once it has trained in earnest."""
    load, trained = workload.load_weights, []

    def train(batches, train_epoch):
        if is_timed(batches):
            trained.append(True)
        return train_epoch()

    _train_by(workload, train)
    workload.load_weights = lambda weights: None if trained else load(weights)


def returns_early(workload):
    """Trains in a thread, and returns the losses of the epoch before at once."""
    before = []

    def train(batches, train_epoch):
        if not is_timed(batches):
            return train_epoch()
        if before:
            threading.Thread(target=lambda: before.append(train_epoch())).start()
            return before[0]
        before.append(train_epoch())
        return before[0]

    _train_by(workload, train)


def goes_on(workload):
    """Leaves work behind for which the next one who asks has to wait, as a GPU would."""
    weights, over = workload.weights, [0.0]

    def train(batches, train_epoch):
        losses = train_epoch()
        over[0] = time.perf_counter() + 0.5
        return losses

    def wait():
        time.sleep(max(0.0, over[0] - time.perf_counter()))
        return weights()

    _train_by(workload, train)
    workload.weights = wait


def changes_nothing(workload):
    """Computes the losses of an epoch, but brings the weights back afterwards."""

    def train(batches, train_epoch):
        weights = workload.weights()
        losses = train_epoch()
        if is_timed(batches):
            workload.load_weights(weights)
        return losses

    _train_by(workload, train)


def is_stopped(workload):
    """Has its process stopped for a second within its fourth epoch of a round."""
    epochs = []

    def train(batches, train_epoch):
        epochs.append(is_timed(batches))
        if sum(epochs) == 4:
            subprocess.run(
                ["sh", "-c", f"kill -STOP {os.getpid()}; sleep 1; kill -CONT {os.getpid()}"]
            )
        return train_epoch()

    _train_by(workload, train)


def _train_by(workload, train):
    """Have train_epoch call `train` with the placed batches and the real train_epoch."""
    place, train_epoch, placed = workload.place, workload.train_epoch, []

    def remember(batches):
        placed[:] = [batches]
        place(batches)

    workload.place = remember
    workload.train_epoch = lambda: train(placed[0], train_epoch)


def _place_by(workload, change):
    place = workload.place
    workload.place = lambda batches: place(change(batches) if is_timed(batches) else batches)


def _first(batches, number):
    return replace(batches, inputs=batches.inputs[:number], labels=batches.labels[:number])


def _cut(batches, size):
    return ArrayBatches(batches.inputs[:, :size].copy(), batches.labels[:, :size].copy())


def _filled(losses, number):
    return np.append(losses, np.full(number - len(losses), losses[-1]))


FAULTS = (
    remembers,
    stops_early,
    takes_less,
    keeps_weights,
    returns_early,
    goes_on,
    changes_nothing,
    is_stopped,
)


def __getattr__(name):
    """The adapter of an entry point: "torch_remembers"."""
    framework, _, fault = name.partition("_")
    faults = {fault.__name__: fault for fault in FAULTS}
    if fault not in faults:
        raise AttributeError(name)
    return Planted(framework, faults[fault])
