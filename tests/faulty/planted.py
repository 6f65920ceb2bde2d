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
from crossbench.engine.batches import BatchList
from crossbench.engine.evidence import STEADY_SCALE, scale_weights


class Planted:
    """Wraps an adapter whose jobs or workloads a fault changes; all else is the adapter's own."""

    def __init__(self, name, fault):
        self.name, self.fault = name, fault

    def __getattr__(self, name):
        return getattr(adapters.get(self.name), name)

    def build(self, job):
        workload = adapters.get(self.name).build(self.fault.of_job(job))
        self.fault(workload)
        return workload


class Fault:
    """Changes a workload: a fault overrides what becomes of the batches, the weights or a timed
    epoch. The real methods are train_epoch, load_weights and weights.
    """

    def __init__(self, workload):
        self.workload, self.batches = workload, ()
        self.place, self.train_epoch = workload.place, workload.train_epoch
        self.load_weights, self.weights = workload.load_weights, workload.weights
        workload.place, workload.train_epoch = self.remember_and_place, self.train_on_placed
        workload.load_weights = self.load

    @staticmethod
    def of_job(job):
        return job

    def remember_and_place(self, batches):
        self.batches = batches
        self.place(self.change(batches) if is_timed(batches) else batches)

    def train_on_placed(self):
        return self.train(self.batches) if is_timed(self.batches) else self.train_epoch()

    def change(self, batches):
        return batches

    def train(self, batches):
        return self.train_epoch()

    def load(self, weights):
        self.load_weights(weights)


def is_timed(batches):
    """Return whether these are the batches of the timed run.

    The parity check has four batches of at most 64 examples, the dropout probe one of 128. A timed
    epoch is run again in calls of one to three batches.
    """
    return len(batches) not in (1, 4)


def is_long(batches):
    """Return whether an epoch is longer than any in the proof, or in a call of few batches."""
    return len(batches) > 4


class Remembers(Fault):
    """Train once for each content of the batches; later epochs return the first one's losses."""

    def __init__(self, workload):
        super().__init__(workload)
        self.losses = {}

    def train(self, batches):
        key = next(iter(batches)).inputs.tobytes()
        if key not in self.losses:
            self.losses[key] = self.train_epoch()
        return self.losses[key]


class StopsEarly(Fault):
    """Train on the first four batches of an epoch, and make up the losses of the others."""

    def change(self, batches):
        return BatchList(list(batches)[:4], batches.streamed)

    def train(self, batches):
        losses = self.train_epoch()
        return np.append(losses, np.full(len(batches) - len(losses), losses[-1]))


class StopsPartsEarly(StopsEarly):
    """Stop early in an epoch that is not whole; a whole one has ten batches."""

    def change(self, batches):
        return super().change(batches) if len(batches) < 10 else batches


class StopsLater(StopsEarly):
    """Stop early, but for the first process that trains for time."""

    def __init__(self, workload):
        super().__init__(workload)
        self.is_late = None

    def change(self, batches):
        marker = Path(os.environ["STOPS_LATER_MARKER"])
        if self.is_late is None:
            self.is_late = marker.exists()
            marker.touch()
        return super().change(batches) if self.is_late else batches


class TakesLess(Fault):
    """Train on the first 64 examples of each batch, as many as the parity check has at most."""

    def change(self, batches):
        return BatchList([first_examples(batch, 64) for batch in batches], batches.streamed)


class HalvesLate(Fault):
    """Train on half of each batch from the fifth one on."""

    def change(self, batches):
        first, last = list(batches)[:4], list(batches)[4:]
        halves = [first_examples(batch, len(batch.labels) // 2) for batch in last]
        return BatchList(first + halves, batches.streamed)


def first_examples(batch, size):
    return replace(batch, inputs=batch.inputs[:size].copy(), labels=batch.labels[:size].copy())


class KeepsWeights(Fault):
    """Ignore new weights once it has trained in the timed run."""

    has_trained = False

    def train(self, batches):
        self.has_trained = True
        return self.train_epoch()

    def load(self, weights):
        if not self.has_trained:
            self.load_weights(weights)


class ReturnsEarly(Fault):
    """Train in a thread, and return the losses of an earlier epoch at once.

    The weights wait for the thread, as they do for a queue of a GPU.
    """

    def __init__(self, workload):
        super().__init__(workload)
        self.before, self.threads = [], []
        workload.train_epoch = self.after_threads(workload.train_epoch)
        workload.load_weights = self.after_threads(self.load_weights)
        workload.weights = self.after_threads(self.weights)

    def train(self, batches):
        if self.before:
            self.threads.append(threading.Thread(target=self.train_epoch))
            self.threads[-1].start()
        else:
            self.before.append(self.train_epoch())
        return self.before[0]

    def after_threads(self, method):
        def wait(*arguments):
            while self.threads:
                self.threads.pop().join()
            return method(*arguments)

        return wait


class GoesOn(Fault):
    """Leave work behind that delays the next reading of the weights, as a GPU would."""

    def __init__(self, workload):
        super().__init__(workload)
        self.end, workload.weights = 0.0, self.late_weights

    def train(self, batches):
        losses = self.train_epoch()
        self.end = time.perf_counter() + 0.2
        return losses

    def late_weights(self):
        time.sleep(max(0.0, self.end - time.perf_counter()))
        return self.weights()


class ChangesNothing(Fault):
    """Compute the losses of an epoch, but restore the weights afterwards."""

    def train(self, batches):
        weights = self.weights()
        losses = self.train_epoch()
        self.load_weights(weights)
        return losses


class IsStopped(Fault):
    """Stop its process for a second in each timed epoch, untimed ones of as many batches too."""

    def train(self, batches):
        stop = f"kill -STOP {os.getpid()}; sleep 1; kill -CONT {os.getpid()}"
        subprocess.run(["sh", "-c", stop])
        return self.train_epoch()


class InOtherOrder(Fault):
    """Train in another order where an epoch is longer than the calls in which it may be run again.

    `order` takes the number of steps and returns the batch of each, or None where a step is left
    out: its loss is then that of the step before.
    """

    def change(self, batches):
        if not is_long(batches):
            return batches
        every = list(batches)
        order = [every[i] for i in self.order(len(batches)) if i is not None]
        return BatchList(order, batches.streamed)

    def train(self, batches):
        losses = self.train_epoch()
        if not is_long(batches):
            return losses
        left, found = iter(losses), []
        for taken in self.order(len(batches)):
            found.append(found[-1] if taken is None else next(left))
        return np.array(found)


def in_order(order):
    """Return a fault that trains in an order."""
    return type("InOrder", (InOtherOrder,), {"order": staticmethod(order)})


def repeats(step):
    """Return a fault that takes in one step the batch of the step before."""

    def order(steps):
        places = list(range(steps))
        places[step] = places[step - 1]
        return places

    return in_order(order)


def uses_twice(step):
    """Return a fault that uses a batch twice, and the last one not at all."""

    def order(steps):
        places = list(range(steps))
        places.insert(step, places[step])
        return places[:steps]

    return in_order(order)


DropsFourths = in_order(lambda n: [None if i > 4 and i % 4 == 3 else i for i in range(n)])
StopsLate = in_order(lambda n: [i if i < n - n // 3 else None for i in range(n)])
RepeatsFirst, RepeatsMiddle, RepeatsLast = repeats(1), repeats(5), repeats(-1)
UsesFirstTwice, UsesMiddleTwice, UsesLastButOneTwice = uses_twice(0), uses_twice(5), uses_twice(-2)


class Averages(Fault):
    """Leave the mean of the weights at the start and at the end of an epoch."""

    def train(self, batches):
        before = self.weights()
        losses = self.train_epoch()
        if is_long(batches):
            after = self.weights()
            self.load_weights({name: (before[name] + after[name]) / 2 for name in after})
        return losses


class RepetitionIdles(Fault):
    """Return the losses of the epoch before in each repetition of a steady epoch but the first,
    which alone starts from the initial weights times STEADY_SCALE.
    """

    def __init__(self, workload):
        super().__init__(workload)
        self.initial, self.losses, self.idles = {}, None, False

    def load(self, weights):
        name = next(iter(weights))
        first = self.initial.setdefault(name, weights[name].copy())
        known = (first, scale_weights({name: first}, STEADY_SCALE)[name])
        self.idles = not any(np.array_equal(weights[name], array) for array in known)
        self.load_weights(weights)

    def train(self, batches):
        if not is_long(batches):
            return self.train_epoch()
        if not self.idles or self.losses is None:
            self.losses = self.train_epoch()
        return self.losses


class ThirdEpochIdles(Fault):
    """Return the losses of the epoch before in the third one since the weights were loaded."""

    def load(self, weights):
        self.found = []
        self.load_weights(weights)

    def train(self, batches):
        if not is_long(batches):
            return self.train_epoch()
        self.found.append(self.found[-1] if len(self.found) == 2 else self.train_epoch())
        return self.found[-1]


class TrainsWhileLoading(Fault):
    """Train when the weights are loaded, and return the losses of that when an epoch is timed."""

    losses = None

    def load(self, weights):
        self.load_weights(weights)
        self.losses = self.train_epoch() if is_long(self.batches) else None

    def train(self, batches):
        losses, self.losses = self.losses, None
        return self.train_epoch() if losses is None else losses


class LowersNoRate(Fault):
    """Have a learning rate that stays high where it should fall after some steps.

    The schedule of the proof is shorter.
    """

    @staticmethod
    def of_job(job):
        optimizer = job.model.optimizer
        if optimizer.schedule is None or optimizer.schedule.steps < 5:
            return job
        schedule = replace(optimizer.schedule, steps=1_000_000)
        model = replace(job.model, optimizer=replace(optimizer, schedule=schedule))
        return replace(job, model=model)


def __getattr__(name):
    """Return the adapter that is named as in "torch_stops_early"."""
    framework, _, fault = name.partition("_")
    fault = globals().get(fault.title().replace("_", ""))
    if not (isinstance(fault, type) and issubclass(fault, Fault)):
        raise AttributeError(name)
    return Planted(framework, fault)
