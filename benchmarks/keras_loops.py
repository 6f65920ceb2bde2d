"""Compare Keras' two loops on each backend: fit, and train_on_batch as the adapter calls it.

Run by hand: python benchmarks/keras_loops.py [backends] [models] [rounds], for example
python benchmarks/keras_loops.py tensorflow,jax,torch lenet,mnist_mlp 6. Both loops train the same
batches of synthetic data in one process for each backend, in turn; the ratio is paired by epoch.
`fit` gets the arrays and cuts them itself, unshuffled. It reports the mean loss of an epoch, and
train_on_batch that of each step.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np

from crossbench import models
from crossbench.adapters.keras import ADAPTER
from crossbench.engine.batches import ArrayBatches
from crossbench.host.machine import usable_cpus
from crossbench.inputs.names import IDIOMATIC
from crossbench.report.formatting import with_interval
from crossbench.results.statistics import estimate
from crossbench.workload import Job

VARIANTS = {"tensorflow": IDIOMATIC, "jax": "jax", "torch": "torch"}
BATCHES = 10


def measure(backend: str, name: str, rounds: int) -> str:
    """Return a line with the seconds of an epoch of each loop, and their ratio."""
    adapter = ADAPTER.of_variant(VARIANTS[backend])
    threads = len(usable_cpus())
    os.environ |= adapter.environment("cpu", threads) | adapter.required_environment("cpu")
    model, random = models.get(name), np.random.default_rng(0)
    workload = adapter.build(Job(model, "cpu", threads, "float32", VARIANTS[backend]))
    workload.load_weights(model.initial_weights(0))
    inputs = random.random((BATCHES, model.batch_size, *model.input_shape), np.float32)
    labels = random.integers(0, model.classes, (BATCHES, model.batch_size))
    workload.place(ArrayBatches(inputs, labels))
    examples = inputs.reshape(-1, *model.input_shape)
    if examples.ndim == 4:
        examples = np.ascontiguousarray(examples.transpose(0, 2, 3, 1))
    asked = {"batch_size": model.batch_size, "shuffle": False, "verbose": 0}

    def fit() -> None:
        workload.model.fit(examples, labels.ravel(), **asked)
        workload.wait()

    loops = {"fit": fit, "train_on_batch": workload.train_epoch}
    seconds: dict[str, list[float]] = {loop: [] for loop in loops}
    for number in range(1 + rounds):  # the first one compiles
        for loop, call in loops.items():
            start = time.perf_counter()
            call()
            if number:
                seconds[loop].append(time.perf_counter() - start)
    medians = [f"{loop} {1000 * np.median(s) / BATCHES:.3g} ms" for loop, s in seconds.items()]
    paired = estimate([one / other for one, other in zip(*seconds.values(), strict=True)])
    loop = " / ".join(loops)
    return f"{backend} {name}: {', '.join(medians)} a step; {loop} {with_interval(paired)}"


def main() -> None:
    asked = dict(enumerate(sys.argv[1:]))
    rounds = int(asked.get(2, 6))
    for backend in asked.get(0, ",".join(VARIANTS)).split(","):
        for name in asked.get(1, "lenet,mnist_mlp").split(","):
            if "--inside" in sys.argv:
                print(measure(backend, name, rounds), flush=True)
            else:  # Keras has one backend for each process
                words = [__file__, backend, name, str(rounds), "--inside"]
                subprocess.run([sys.executable, *words], check=True)


if __name__ == "__main__":
    main()
