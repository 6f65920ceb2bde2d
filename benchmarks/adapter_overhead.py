"""Measure the overhead of an adapter over a hand-written training loop, by batch size: in small
steps the cost of the calls dominates.

Epochs of the LeNet alternate between the two in one process and are compared in pairs: a ratio of
1 is no overhead. Run by hand: python benchmarks/adapter_overhead.py NAME [rounds].
"""

import os
import sys
import time
from statistics import median

import numpy as np

from crossbench import adapters, models
from crossbench.engine.batches import ArrayBatches
from crossbench.host.machine import usable_cpus
from crossbench.workload import Job

STEPS = {2: 2000, 32: 200, 1000: 5}
"""Steps of an epoch, by batch size."""


def torch_by_hand(weights, batches):
    import torch
    from torch import nn

    net = nn.Sequential(
        nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 8, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(200, 120), nn.Linear(120, 84), nn.Linear(84, 10),
    )  # fmt: skip
    for parameter, array in zip(net.parameters(), weights.values(), strict=True):
        parameter.data = torch.from_numpy(array.copy())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches]

    def epoch():
        losses = []
        for x, y in data:
            optimizer.zero_grad()
            loss = loss_function(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    return epoch


def jax_by_hand(weights, batches):
    import jax
    import jax.numpy as jnp
    import optax

    params = {
        name: jnp.asarray(w.transpose({1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}[w.ndim]))
        for name, w in weights.items()
    }

    def conv(x, name, p):
        dims = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            x, p[f"{name}.weight"], (1, 1), "VALID", dimension_numbers=dims
        )
        y = jax.nn.relu(y + p[f"{name}.bias"])
        return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(p, x, y):
        x = conv(conv(x, "conv1", p), "conv2", p).transpose(0, 3, 1, 2).reshape(len(x), -1)
        for name in ("dense1", "dense2", "dense3"):
            x = x @ p[f"{name}.weight"] + p[f"{name}.bias"]
        return optax.softmax_cross_entropy_with_integer_labels(x, y).mean()

    optimizer = optax.sgd(0.01, 0.9)

    @jax.jit
    def step(p, state, x, y):
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(p, updates), state, value

    data = [(jnp.asarray(x.transpose(0, 2, 3, 1)), jnp.asarray(y)) for x, y in batches]
    params_and_state = [params, optimizer.init(params)]

    def epoch():
        losses = []
        for x, y in data:
            *params_and_state[:], value = step(*params_and_state, x, y)
            losses.append(value)
        return [float(value) for value in losses]

    return epoch


FLUX_BY_HAND = """
import Flux: Chain, Conv, Dense, Flux, MaxPool, Momentum, relu
function by_hand(weights, inputs, labels)
    model = Chain(
        Conv((5, 5), 3 => 16, relu), MaxPool((2, 2)),
        Conv((5, 5), 16 => 8, relu), MaxPool((2, 2)),
        Flux.flatten, Dense(200 => 120), Dense(120 => 84), Dense(84 => 10),
    )
    foreach(copyto!, Flux.trainables(model), weights)
    state = Flux.setup(Momentum(0.01, 0.9), model)
    data = [(Array{Float32}(x), Flux.onehotbatch(y, 0:9)) for (x, y) in zip(inputs, labels)]
    return () -> epoch!(model, state, data)
end
function epoch!(model, state, data)
    losses = Float32[]
    for (x, y) in data
        loss, gradients = Flux.withgradient(m -> Flux.logitcrossentropy(m(x), y), model)
        Flux.update!(state, model, gradients[1])
        push!(losses, loss)
    end
    return losses
end
"""


def flux_by_hand(weights, batches):
    from juliacall import Main

    Main.seval(FLUX_BY_HAND)
    # Flux flips its kernels, and its axes are W, H, I, O and W, H, C, N
    flux_weights = [w[:, :, ::-1, ::-1].T if w.ndim == 4 else w for w in weights.values()]
    epoch = Main.by_hand(flux_weights, [x.T for x, _ in batches], [y for _, y in batches])
    return lambda: np.array(epoch())


LUX_BY_HAND = """
using Lux, Optimisers, Zygote
using Random: Xoshiro
function by_hand(weights, inputs, labels)
    model = Chain(
        Conv((5, 5), 3 => 16, relu), MaxPool((2, 2)),
        Conv((5, 5), 16 => 8, relu), MaxPool((2, 2)),
        FlattenLayer(), Dense(200 => 120), Dense(120 => 84), Dense(84 => 10),
    )
    ps, st = Lux.setup(Xoshiro(0), model)
    foreach(copyto!, Optimisers.trainables(ps), weights)
    state = Training.TrainState(model, ps, st, Momentum(0.01, 0.9))
    onehot(y) = y' .== 0:9
    data = [(Array{Float32}(x), onehot(y)) for (x, y) in zip(inputs, labels)]
    return () -> ((losses, state) = epoch!(state, data); losses)
end
function epoch!(state, data)
    losses = Float32[]
    loss_function = CrossEntropyLoss(; logits = Val(true))
    for (x, y) in data
        _, loss, _, state =
            Training.single_train_step!(AutoZygote(), loss_function, (x, y), state)
        push!(losses, loss)
    end
    return losses, state
end
"""


def lux_by_hand(weights, batches):
    from juliacall import Main

    Main.seval(LUX_BY_HAND)
    # Lux flips its kernels, and its axes are W, H, I, O and W, H, C, N; a dense weight is (out, in)
    lux_weights = [w[:, :, ::-1, ::-1].T if w.ndim == 4 else w for w in weights.values()]
    epoch = Main.by_hand(lux_weights, [x.T for x, _ in batches], [y for _, y in batches])
    return lambda: np.array(epoch())


def keras_by_hand(weights, batches):
    import keras
    from keras import layers

    net = keras.Sequential([
        keras.Input((32, 32, 3)),
        layers.Conv2D(16, 5, activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(8, 5, activation="relu"), layers.MaxPooling2D(),
        layers.Permute((3, 1, 2)), layers.Flatten(),
        layers.Dense(120), layers.Dense(84), layers.Dense(10),
    ])  # fmt: skip
    axes = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}
    net.set_weights([w.transpose(axes[w.ndim]) for w in weights.values()])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(keras.optimizers.SGD(0.01, 0.9), loss)
    tensor = keras.ops.convert_to_tensor
    data = [(tensor(x.transpose(0, 2, 3, 1)), tensor(y)) for x, y in batches]
    return lambda: [net.train_on_batch(x, y) for x, y in data]


def seconds(epoch):
    start = time.perf_counter()
    epoch()
    return time.perf_counter() - start


def main(name, rounds=15):
    model = models.get("lenet")
    weights = model.initial_weights(0)
    job = Job(model, "cpu", len(usable_cpus()), "float32")
    adapter = adapters.get(name)
    os.environ |= adapter.environment(job.device, job.threads)
    os.environ |= adapter.required_environment("cpu")
    workload = adapter.build(job)
    for batch_size, steps in STEPS.items():
        random = np.random.default_rng(0)
        inputs = random.random((steps, batch_size, 3, 32, 32), np.float32)
        labels = random.integers(0, 10, (steps, batch_size))
        workload.load_weights(weights)
        workload.place(ArrayBatches(inputs, labels))
        pairs = list(zip(inputs, labels, strict=True))
        by_hand = {"torch": torch_by_hand, "jax": jax_by_hand, "flux": flux_by_hand,
                   "lux": lux_by_hand, "keras": keras_by_hand}[name](weights, pairs)  # fmt: skip
        # warms both up, too; rounding grows with the steps
        np.testing.assert_allclose(workload.train_epoch()[:5], by_hand()[:5], rtol=1e-4)
        ratios = [seconds(workload.train_epoch) / seconds(by_hand) for _ in range(rounds)]
        print(f"{name}: adapter / by hand, {steps} steps of {batch_size}, {rounds} paired epochs: "
              f"median {median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
