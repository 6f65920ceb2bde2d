"""Compare two ways to time a training step: an epoch in one call, as crossbench does, and the
median of a loop of single steps, as SciMLBenchmarks.jl does.

Both train mlp7_relu on the same batch in one process, in turns. A ratio of 1 says that it does not
matter; below 1 the loop of single steps reports less. Run by hand:
python benchmarks/single_steps.py torch|flux [rounds].
"""

import os
import sys
import time
from itertools import pairwise
from statistics import mean, median

import numpy as np

from crossbench import adapters, models
from crossbench.engine.batches import ArrayBatches
from crossbench.host.machine import usable_cpus
from crossbench.workload import Job

BATCH_SIZES, STEPS = (32, 2048), 50


def torch_steps(weights, inputs, targets):
    """Return time_torch_train_step of nn_benchmark_utils.py as a function, in seconds per step."""
    import torch
    from torch import nn

    sizes = [32, *[256] * 6]
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(256, 10))
    for parameter, array in zip(net.parameters(), weights.values(), strict=True):
        parameter.data = torch.from_numpy(array.copy())
    optimizer, loss_function = torch.optim.Adam(net.parameters(), lr=1e-3), nn.MSELoss()
    x, y = torch.from_numpy(inputs), torch.from_numpy(targets)

    def steps():
        times = []
        for _ in range(STEPS):
            start = time.perf_counter()
            optimizer.zero_grad()
            loss = loss_function(net(x), y)
            loss.backward()
            optimizer.step()
            times.append(time.perf_counter() - start)
        return times

    return steps


FLUX_STEPS = """
import Flux
using Flux: Adam, Chain, Dense, relu
function single_steps(weights, x, y)
    model = Chain(
        Dense(32 => 256, relu), [Dense(256 => 256, relu) for _ in 1:5]..., Dense(256 => 10)
    )
    foreach(copyto!, Flux.trainables(model), weights)
    state = Flux.setup(Adam(1.0f-3), model)
    x, y = Array{Float32}(x), Array{Float32}(y)
    return steps -> [@elapsed(single_step!(model, state, x, y)) for _ in 1:steps]
end
function single_step!(model, state, x, y)
    loss, gradients = Flux.withgradient(m -> Flux.mse(m(x), y), model)
    Flux.update!(state, model, gradients[1])
    return loss
end
"""


def flux_steps(weights, inputs, targets):
    """Return the Flux step of simple_networks.jmd, with the mean of the squared errors."""
    from juliacall import Main

    Main.seval(FLUX_STEPS)
    run = Main.single_steps(list(weights.values()), inputs.T, targets.T)
    return lambda: list(run(STEPS))


def main(name, rounds=15):
    model = models.get("mlp7_relu")
    weights = model.initial_weights(0)
    job = Job(model, "cpu", len(usable_cpus()), "float32")
    adapter = adapters.get(name)
    os.environ |= adapter.environment(job.device, job.threads)
    workload = adapter.build(job)
    for batch_size in BATCH_SIZES:
        random = np.random.default_rng(0)
        inputs = random.standard_normal((batch_size, 32), np.float32)
        targets = random.standard_normal((batch_size, 10), np.float32)
        repeated = (np.stack([array] * STEPS) for array in (inputs, targets))
        workload.load_weights(weights)
        workload.place(ArrayBatches(*repeated))
        single = {"torch": torch_steps, "flux": flux_steps}[name](weights, inputs, targets)
        workload.train_epoch(), single()  # warm up
        medians, means = [], []
        for _ in range(rounds):
            start = time.perf_counter()
            workload.train_epoch()
            step = (time.perf_counter() - start) / STEPS
            times = single()
            medians.append(median(times) / step)
            means.append(mean(times) / step)
        print(f"{name}, batches of {batch_size}: an epoch takes {1e3 * step:.3g} ms per step; "
              f"relative to it, {rounds} pairs: median of single steps {median(medians):.3f} "
              f"({min(medians):.3f} to {max(medians):.3f}), their mean {median(means):.3f} "
              f"({min(means):.3f} to {max(means):.3f})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
