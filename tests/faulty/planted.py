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
    """Wraps an adapter whose workloads `fault` changes; all else is the adapter's own."""

    def __init__(self, name, fault):
        self.name, self.fault = name, fault

    def __getattr__(self, name):
        return getattr(adapters.get(self.name), name)

    def build(self, job):
        if self.fault in OF_JOBS:
            return adapters.get(self.name).build(self.fault(job))
        workload = adapters.get(self.name).build(job)
        self.fault(workload)
        return workload


def is_timed(batches):
    """Return whether these are the batches of the timed run.

    The parity check has four batches of at most 64 examples, the dropout probe one of 128. A timed
    epoch is run again in calls of one to three batches.
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
    """Stop its process for a second in each timed epoch, untimed ones of as many batches too."""

    def train(batches, train_epoch):
        if is_timed(batches):
            subprocess.run(
                ["sh", "-c", f"kill -STOP {os.getpid()}; sleep 1; kill -CONT {os.getpid()}"]
            )
        return train_epoch()

    _wrap_train_epoch(workload, train)


def _in_other_order(order):
    """Return the fault of training in another order where an epoch is longer than the calls in
    which it may be run again: `order` takes the number of steps and returns the batch of each, or
    None where a step is left out. Its loss is then that of the step before.
    """

    def fault(workload):
        places = []

        def reordered(batches):
            places[:] = order(len(batches))
            every = list(batches)
            return BatchList([every[i] for i in places if i is not None], batches.streamed)

        def train(batches, train_epoch):
            losses = train_epoch()
            if not is_long(batches):
                return losses
            left, found = iter(losses), []
            for taken in places:
                found.append(found[-1] if taken is None else next(left))
            return np.array(found)

        place = workload.place
        workload.place = lambda batches: place(reordered(batches) if is_long(batches) else batches)
        _wrap_train_epoch(workload, train)

    return fault


def is_long(batches):
    """Return whether an epoch is longer than any in the proof, or in a call of few batches."""
    return len(batches) > 4


def _replaced(step, other):
    """Return the order in which the batch of one step is that of another."""

    def order(steps):
        places = list(range(steps))
        places[step] = places[other]
        return places

    return order


def _used_twice(step):
    """Return the order in which a batch is used twice, and the last one not at all."""

    def order(steps):
        places = list(range(steps))
        places.insert(step, places[step])
        return places[:steps]

    return order


drops_fourths = _in_other_order(
    lambda steps: [None if step > 4 and step % 4 == 3 else step for step in range(steps)]
)
stops_late = _in_other_order(
    lambda steps: [step if step < steps - steps // 3 else None for step in range(steps)]
)
repeats_first = _in_other_order(_replaced(1, 0))
repeats_middle = _in_other_order(_replaced(5, 4))
repeats_last = _in_other_order(_replaced(-1, -2))
uses_first_twice = _in_other_order(_used_twice(0))
uses_middle_twice = _in_other_order(_used_twice(5))
uses_last_but_one_twice = _in_other_order(_used_twice(-2))


def halves_late(workload):
    """Train on half of each batch from the fifth one on."""

    def place(batches):
        return BatchList(
            [batch if step < 4 else half(batch) for step, batch in enumerate(batches)],
            batches.streamed,
        )

    def half(batch):
        size = len(batch.labels) // 2
        return replace(batch, inputs=batch.inputs[:size].copy(), labels=batch.labels[:size].copy())

    _wrap_place(workload, place)


def averages(workload):
    """Leave the mean of the weights at the start and at the end of an epoch."""

    def train(batches, train_epoch):
        if not is_long(batches):
            return train_epoch()
        before = workload.weights()
        losses = train_epoch()
        after = workload.weights()
        workload.load_weights({name: (before[name] + after[name]) / 2 for name in after})
        return losses

    _wrap_train_epoch(workload, train)


def repetition_idles(workload):
    """Return the losses of the epoch before in each repetition of a steady epoch but the first,
    which alone starts from the initial weights times STEADY_SCALE.
    """
    load, initial, found, idles = workload.load_weights, {}, [], []

    def load_and_look(weights):
        name = next(iter(weights))
        first = initial.setdefault(name, weights[name].copy())
        known = (first, scale_weights({name: first}, STEADY_SCALE)[name])
        idles[:] = [not any(np.array_equal(weights[name], array) for array in known)]
        load(weights)

    def train(batches, train_epoch):
        if not is_long(batches):
            return train_epoch()
        found.append(found[-1] if idles[0] and found else train_epoch())
        return found[-1]

    _wrap_train_epoch(workload, train)
    workload.load_weights = load_and_look


def third_epoch_idles(workload):
    """Return the losses of the epoch before in the third one since the weights were loaded."""
    load, found = workload.load_weights, []

    def train(batches, train_epoch):
        if not is_long(batches):
            return train_epoch()
        found.append(found[-1] if len(found) == 2 else train_epoch())
        return found[-1]

    def load_and_forget(weights):
        found.clear()
        load(weights)

    _wrap_train_epoch(workload, train)
    workload.load_weights = load_and_forget


def trains_while_loading(workload):
    """Train when the weights are loaded, and return the losses of that when an epoch is timed."""
    load, place, train_epoch = workload.load_weights, workload.place, workload.train_epoch
    placed, found = [], []

    def remember(batches):
        placed[:] = [batches]
        place(batches)

    def load_and_train(weights):
        load(weights)
        found[:] = [train_epoch()] if placed and is_long(placed[0]) else []

    workload.place, workload.load_weights = remember, load_and_train
    workload.train_epoch = lambda: found.pop() if found else train_epoch()


def lowers_no_rate(job):
    """Return the job with a learning rate that stays high where it should fall after some steps.

    The schedule of the proof is shorter.
    """
    optimizer = job.model.optimizer
    if optimizer.schedule is None or optimizer.schedule.steps < 5:
        return job
    schedule = replace(optimizer.schedule, steps=1_000_000)
    model = replace(job.model, optimizer=replace(optimizer, schedule=schedule))
    return replace(job, model=model)


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
    return BatchList(list(batches)[:number], batches.streamed)


def _first_examples(batches, size):
    return BatchList(
        [
            replace(batch, inputs=batch.inputs[:size].copy(), labels=batch.labels[:size].copy())
            for batch in batches
        ],
        batches.streamed,
    )


def _padded(losses, number):
    return np.append(losses, np.full(number - len(losses), losses[-1]))


OF_JOBS = (lowers_no_rate,)
"""Faults that change the job, not the workload."""


def __getattr__(name):
    """Return the adapter that is named as in "torch_remembers"."""
    framework, _, fault = name.partition("_")
    if fault.startswith("_") or not callable(globals().get(fault)):
        raise AttributeError(name)
    return Planted(framework, globals()[fault])
