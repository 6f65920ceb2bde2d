"""Count how often --layers finds a part that was made slower, with its size.

Three parts are: a convolution that computes twice, a max-pool that waits 10 ms longer, and an
optimizer that takes three times as long. Each run compares a framework with these three rows of it;
a part is found where it is the one that differs most from the honest row, and by the right size,
within 20 %. Run by hand, on a quiet machine: python benchmarks/planted_parts.py [runs]
[framework ...].
"""

import os
import sys
import time
from dataclasses import replace
from functools import cache
from itertools import product

import crossbench
from crossbench import models
from crossbench.adapters.jax import JaxAdapter
from crossbench.adapters.reference import ReferenceAdapter
from crossbench.adapters.torch import TorchAdapter
from crossbench.results.breakdown import differences

LENET = models.get("lenet")
PICTURES = replace(
    LENET,
    name="pictures",
    batch_size=200,
    layers=(*LENET.layers[:3], models.Flatten(), models.Dense(10)),
)
NUMBERS = replace(
    LENET,
    name="numbers",
    batch_size=32,
    layers=(models.Flatten(), models.Dense(512), models.ReLU(), models.Dense(10)),
    optimizer=models.Adam(1e-3, 0.9, 0.999, 1e-8),
)
MODELS = {"conv": PICTURES, "pool": PICTURES, "optimizer": NUMBERS}
"""The model in which each fault is planted: in its step, the part is no small one."""
FAULTS = {"conv": "conv1", "pool": "maxpool1", "optimizer": "optimizer"}
"""The part that each fault makes slower."""
POOL_SECONDS = 0.01
OPTIMIZER_SECONDS = "PLANTED_OPTIMIZER_SECONDS"
"""Environment variable: what the optimizer waits, twice what it takes."""
TOLERANCE = 0.2


def wait(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def optimizer_seconds():
    return float(os.environ.get(OPTIMIZER_SECONDS, "0"))


class Planted:
    """Mixed into an adapter, changes its workloads by the module's function for the fault."""

    def __init__(self, fault):
        self.title, self.fault = f"{type(self).title}, slow {FAULTS[fault]}", fault

    def build(self, job):
        return type(self).plant(self.fault, job)


def torch_workload(fault, job):
    import torch

    from crossbench.adapters.torch.workload import TorchWorkload

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            torch.nn.functional.conv2d(x, weight, bias)
            return torch.nn.functional.conv2d(x, weight, bias)

        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensors
            wanted = [ctx.needs_input_grad[0], True, True]
            sizes = ([weight.shape[0]], (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
            for _ in range(2):
                found = torch.ops.aten.convolution_backward(dy, x, weight, *sizes, wanted)
            return found

    workload = TorchWorkload(job)
    for module in workload.module.modules():
        if fault == "conv" and isinstance(module, torch.nn.Conv2d):
            module.forward = lambda x, own=module: Twice.apply(x, own.weight, own.bias)
        if fault == "pool" and isinstance(module, torch.nn.MaxPool2d):
            module.register_forward_hook(lambda *_: wait(POOL_SECONDS))
    if fault == "optimizer":
        workload.optimizer.register_step_post_hook(lambda *_: wait(optimizer_seconds()))
    return workload


def jax_workload(fault, job):
    import jax
    import numpy as np
    from flax import nnx

    from crossbench.adapters.jax.workload import JaxWorkload

    conv, pool = right_layers()

    def twice(self, x):
        again = conv(self, x + 0 * x[0, 0, 0, 0])  # XLA would compute an equal one once
        return (conv(self, x) + again) / 2

    def callback(value):
        wait(POOL_SECONDS)
        return np.zeros((), value.dtype)

    @jax.custom_vjp
    def slow(x):
        zero = jax.ShapeDtypeStruct((), x.dtype)
        # of all of x: of one value of it XLA would compute no more than that before
        return x + jax.pure_callback(callback, zero, x.sum())

    slow.defvjp(lambda x: (slow(x), None), lambda _, dy: (dy,))

    class Workload(JaxWorkload):
        def train_epoch(self):
            step = self.step

            def slow_step(*arguments):
                found = jax.block_until_ready(step(*arguments))
                wait(optimizer_seconds())
                return found

            self.step = slow_step if fault == "optimizer" else step
            losses = super().train_epoch()
            self.step = step
            return losses

    if fault == "conv":
        nnx.Conv.__call__ = twice
    if fault == "pool":
        nnx.max_pool = lambda *arguments, **options: slow(pool(*arguments, **options))
    return Workload(job)


@cache
def right_layers():
    """Return Flax's convolution and max-pool: a process builds several workloads."""
    from flax import nnx

    return nnx.Conv.__call__, nnx.max_pool


@cache
def right_passes():
    """Return those of the convolution and the max-pool: a process builds several workloads."""
    from crossbench.adapters.reference.passes import forward

    return forward.dispatch(models.Conv), forward.dispatch(models.MaxPool)


def reference_workload(fault, job):
    from crossbench.adapters import reference
    from crossbench.adapters.reference.passes import Pass, forward

    class Workload(reference.ReferenceWorkload):
        def step(self, batch):
            loss = super().step(batch)
            if fault == "optimizer":
                wait(optimizer_seconds())
            return loss

    conv, pool = right_passes()

    def twice(layer, named, x, run):
        again = Pass(run.weights, run.training)
        _, back_again = conv(layer, named, x, again)
        y, back = conv(layer, named, x, run)
        return y, lambda dy: (back_again(dy), back(dy))[1]

    def slow(layer, named, x, run):
        wait(POOL_SECONDS * len(x) / PICTURES.batch_size)  # a batch comes in several pieces
        return pool(layer, named, x, run)

    if fault == "conv":
        forward.register(models.Conv, twice)
    if fault == "pool":
        forward.register(models.MaxPool, slow)
    return Workload(job)


class Torch(Planted, TorchAdapter):
    plant = staticmethod(torch_workload)


class Jax(Planted, JaxAdapter):
    plant = staticmethod(jax_workload)


class Reference(Planted, ReferenceAdapter):
    plant = staticmethod(reference_workload)


ADAPTERS = {"torch": Torch, "jax": Jax, "reference": Reference}


for framework, kind in ADAPTERS.items():
    for fault in FAULTS:
        globals()[f"{framework}_{fault}"] = kind(fault)


def seconds(comparison, result, name):
    (part,) = [part for part in comparison.parts if part.name == name]
    return comparison.part_figures(part)[result.name].seconds.median


def found(comparison, result, name):
    """Return the part that differs most from the honest row, and the size of the planted one.

    The size is relative to the right one: of the whole part, but of the max-pool, which is small
    beside its wait, what was added.
    """
    honest = comparison.results[0]
    first, *_ = differences(comparison, result, honest)
    with_fault, without = (seconds(comparison, cell, name) for cell in (result, honest))
    sizes = {
        "conv1": with_fault / (2 * without),
        "maxpool1": (with_fault - without) / POOL_SECONDS,
        "optimizer": with_fault / (without + float(os.environ[OPTIMIZER_SECONDS])),
    }
    return first[0].name, sizes[name]


def main(runs=10, *frameworks):
    asked = {"data": "synthetic", "batches": 5, "rounds": 3, "layers": True}
    for framework in frameworks or ADAPTERS:
        plain = crossbench.run(framework, model=NUMBERS, **asked)
        os.environ[OPTIMIZER_SECONDS] = str(2 * seconds(plain, plain.results[0], "optimizer"))
        right = dict.fromkeys(FAULTS, 0)
        for number, model in product(range(1, int(runs) + 1), (PICTURES, NUMBERS)):
            faults = [fault for fault in FAULTS if MODELS[fault] is model]
            rows = [framework, *(f"{__file__}:{framework}_{fault}" for fault in faults)]
            comparison = crossbench.run(rows, model=model, **asked)
            for fault, result in zip(faults, comparison.results[1:], strict=True):
                first, size = found(comparison, result, FAULTS[fault])
                right[fault] += first == FAULTS[fault] and abs(size - 1) <= TOLERANCE
                print(f"{framework} run {number}: {FAULTS[fault]} planted, {first} named first, "
                      f"size {size:.3f} of the right one", flush=True)  # fmt: skip
        print(f"{framework}: found with the right size in", right, "of", runs, "runs", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
