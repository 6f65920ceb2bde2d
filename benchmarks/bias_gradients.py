"""Show how far the gradients of biases in bfloat16 are from those in float32, in one framework.

Run by hand: python benchmarks/bias_gradients.py [frameworks] [model] [data], for example
python benchmarks/bias_gradients.py torch,jax,keras,keras:jit vit_cifar. Each framework computes the
gradients of the first batch of training from the initial weights, on the CPU, in a process of its
own, in both precisions. Printed are the five biases that differ most, and the other parameter that
does. The model must have no dropouts, whose masks would differ.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from crossbench import adapters
from crossbench.engine.batches import array_batches
from crossbench.examples import load_examples
from crossbench.host.machine import usable_cpus
from crossbench.inputs.names import BFLOAT16, FLOAT32, IDIOMATIC
from crossbench.models import Weights
from crossbench.spec import make_spec
from crossbench.workload import Job

MAX_SHOWN = 5
MIN_SHARE = 1e-4
"""The smallest norm of a gradient, as a share of that of all: others are rounding alone."""


def deviations(float32: Weights, bfloat16: Weights) -> dict[str, float]:
    """Return ‖a - b‖ / ‖b‖ of each parameter whose gradient b in float32 is not rounding alone."""
    sizes = {name: float(np.linalg.norm(array)) for name, array in float32.items()}
    smallest = MIN_SHARE * float(np.linalg.norm(list(sizes.values())))
    return {
        name: float(np.linalg.norm(bfloat16[name] - float32[name])) / size
        for name, size in sizes.items()
        if size > smallest
    }


def measure(implementation: str, model: str, data: str) -> None:
    """Print the largest deviations of a framework."""
    framework, _, variant = implementation.partition(":")
    adapter, threads = adapters.get(framework, variant or IDIOMATIC), len(usable_cpus())
    os.environ |= adapter.environment("cpu", threads) | adapter.required_environment("cpu")
    spec = make_spec(model=model, data=data, batches=1)
    fitted, dataset, _ = load_examples(spec.model, spec.settings, spec.batch_sizes, (1, None))
    batches = array_batches(dataset.train, spec.batch_sizes[0], 1)
    gradients = []
    for compute in (FLOAT32, BFLOAT16):
        job = Job(fitted, "cpu", threads, FLOAT32, variant or IDIOMATIC, compute)
        workload = adapter.build(job)
        workload.load_weights(fitted.initial_weights(spec.settings.seed))
        workload.place(batches)
        gradients.append(workload.backward_epoch()())
    found = sorted(deviations(*gradients).items(), key=lambda item: -item[1])
    biases = [item for item in found if item[0].endswith("bias")]
    others = [item for item in found if not item[0].endswith("bias")]
    shown = ", ".join(f"{name} {value:.1%}" for name, value in [*biases[:MAX_SHOWN], others[0]])
    print(f"{implementation}, {model}, batch of {spec.batch_sizes[0]}: {shown}")


if __name__ == "__main__":
    asked, (frameworks, name, data) = sys.argv[1:], ("torch,jax,keras", "vit_cifar", "synthetic")
    frameworks, name, data = [*asked, *(frameworks, name, data)[len(asked) :]]
    if "," in frameworks:
        for each in frameworks.split(","):
            subprocess.run([sys.executable, __file__, each, name, data], check=True)
    else:
        measure(frameworks, name, data)
