"""Train a model in NumPy, layer by layer from the definitions.

In float64 this is the reference that the frameworks are compared with. In float32 it computes as
inaccurately as any of them may rightly do, which is as Flux does: a max-pool gives the gradient to
the first value of a window within a tolerance of the largest (near ties, NNlib), and a batch norm
adds up a channel one value after another (the sums over dimensions of Julia's Statistics).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ... import models
from ...models.model import Model, Weights
from ...workload import Adapter, Batch, Batches, DeviceArrays, Job, Workload, versions
from . import (  # noqa: F401, they register
    activations,
    attention,
    branches,
    convolutions,
    dense,
    norms,
    pictures,
    recurrent,
    sequences,
)
from .passes import SEED, Outcome, Pass, forward, forward_all
from .rounding import Rounding, rounded
from .training import State, clip, global_norm, loss_and_gradient, update

__all__ = [
    "ADAPTER",
    "NumpyArrays",
    "Pass",
    "ReferenceAdapter",
    "ReferenceWorkload",
    "Rounding",
    "forward",
    "global_norm",
    "loss_and_gradient",
    "rounded",
    "unsupported_part",
]

PIECE_SIZE = 64
"""Examples that go through a model with convolutions or attention at a time: NumPy spends most of
the time of a larger batch on getting memory."""
PIECE_VALUES = 2**24
"""Values of the largest layer of so many examples, at most."""


def unsupported_part(model: Model) -> str | None:
    """Return the name of a layer, loss or optimizer that is not supported here; None if all are.

    A model that has one cannot be compared with the reference.
    """
    parts: list[tuple[Any, Any]] = [(forward, named.layer) for named in model.all_layers()]
    parts += [(loss_and_gradient, model.loss), (update, model.optimizer)]
    for function, part in parts:
        if type(part) not in function.registry:  # a subclass may compute something else
            return type(part).__name__
    return None


class NumpyArrays(DeviceArrays):
    def put(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def fetch(self, array: np.ndarray, step: int = 1) -> np.ndarray:
        return array[::step]

    def address(self, array: np.ndarray) -> int:
        return array.ctypes.data

    def multiply(self, a: np.ndarray, b: np.ndarray, into: np.ndarray) -> np.ndarray:
        return np.matmul(a, b, out=into)

    def copy(self, source: np.ndarray, into: np.ndarray) -> np.ndarray:
        np.copyto(into, source)
        return into


class ReferenceWorkload(Workload):
    def __init__(self, job: Job, rounding: Rounding | None = None) -> None:
        self.model, self.dtype = job.model, np.dtype(job.dtype)
        self.rounding = rounding
        self.layers, self.described = list(job.model.named_layers()), job.model.parameters
        self.near_ties = 0  # of all training passes so far; see Pass
        self.near_zero = 0.0

        def has(*kinds: type) -> bool:
            return any(isinstance(named.layer, kinds) for named in job.model.all_layers())

        self.piece_size = None
        if has(models.Convolution, models.MultiHeadAttention) and not has(models.BatchNorm):
            largest = max(math.prod(n.output_shape) for n in job.model.all_layers())
            self.piece_size = max(1, min(PIECE_SIZE, PIECE_VALUES // largest))

    def load_weights(self, weights: Weights) -> None:
        self.steps, self.state, self.random = 0, State(), np.random.default_rng(SEED)
        self.parameters = {name: array.astype(self.dtype) for name, array in weights.items()}

    def place(self, batches: Batches) -> None:
        self.batches = batches

    def train_epoch(self) -> np.ndarray:
        return np.array([self.step(batch) for batch in self.batches])

    def backward_epoch(self) -> Callable[[], Weights]:
        for batch in self.batches:
            _, run = self._backward(batch, self.random)
        return lambda: run.gradients

    def predict_batches(self) -> Iterator[np.ndarray]:
        return (self.predict(batch.inputs) for batch in self.batches)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        loss, run = self._backward(batch, np.random.default_rng(SEED))
        return loss, run.gradients

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self._forward(inputs, Pass(self.parameters, False, rounding=self.rounding))[0]

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self.parameters.items()}

    def step(self, batch: Batch) -> float:
        """Train on a batch and return its loss."""
        loss, run = self._backward(batch, self.random)
        self.update(run.gradients)
        for name, value in run.running.items():
            self.parameters[name] = value.astype(self.dtype)
        return loss

    def update(self, gradients: Weights) -> None:
        """Change the parameters by a step of the optimizer."""
        optimizer = self.model.optimizer
        rate = optimizer.rate(self.steps)
        for name, gradient in clip(gradients, optimizer.clip_norm).items():
            decay = optimizer.weight_decay_of(self.described[name]) * self.parameters[name]
            is_coupled = isinstance(optimizer, models.Decaying) and optimizer.is_coupled
            given = gradient + decay if is_coupled else gradient
            step = update(optimizer, given, self.state.setdefault(name, {}), self.steps)
            step = rate * (step if is_coupled else step + decay)
            self.parameters[name] -= step.astype(self.dtype)
        self.steps += 1

    def loss(self, batch: Batch) -> float:
        """Return the loss of a batch in training mode; nothing changes."""
        run, loss = Pass(self.parameters, True, rounding=self.rounding), 0.0
        for piece, share in self._pieces(batch):
            run.masks, x = piece.masks, self._inputs(piece.inputs)
            for named in self.layers:  # keep no backward pass: it would hold every layer's input
                x = run.activation(forward(named.layer, named, x, run)[0])
            loss += share * loss_and_gradient(self.model.loss, x, piece.labels)[0]
        return loss

    def _backward(self, batch: Batch, random: np.random.Generator) -> tuple[float, Pass]:
        """Return the loss of a batch, and the pass with its gradients and running statistics."""
        total, loss = Pass(self.parameters, True, None, random), 0.0
        for piece, share in self._pieces(batch):
            run = Pass(self.parameters, True, piece.masks, random, rounding=self.rounding)
            run.near_zero = self.near_zero
            logits, back = self._forward(piece.inputs, run)
            value, gradient = loss_and_gradient(self.model.loss, logits, piece.labels)
            back(gradient * gradient.dtype.type(share))
            loss += share * value
            for name, part in run.gradients.items():
                total.add_to(name, part)
            total.running |= run.running
            total.near_ties += run.near_ties
        self.near_ties += total.near_ties
        return loss, total

    def _pieces(self, batch: Batch) -> Iterator[tuple[Batch, float]]:
        """Yield parts of the batch, each with its share, whose activations fit the caches.

        A model with a batch norm gets the whole batch. A model without a convolution does too: it
        may have a large embedding, whose gradient would be as large for each part.
        """
        length = len(batch.labels)
        size = self.piece_size or length
        for start in range(0, length, size):
            part = slice(start, start + size)
            masks = {name: mask[part] for name, mask in (batch.masks or {}).items()} or None
            labels = batch.labels[part]
            share = len(labels) / length if self.model.loss.is_mean else 1.0
            yield Batch(batch.inputs[part], labels, masks), share

    def _forward(self, inputs: np.ndarray, run: Pass) -> Outcome:
        return forward_all(self.layers, self._inputs(inputs), run)

    def _inputs(self, x: np.ndarray) -> np.ndarray:
        return x if x.dtype.kind == "i" else x.astype(self.dtype)

    def arrays(self) -> NumpyArrays:
        return NumpyArrays()

    def details(self) -> dict[str, str]:
        return versions("numpy")


class ReferenceAdapter(Adapter):
    title = "NumPy reference"

    def available(self, device: str) -> str | None:
        return None if device == "cpu" else "NumPy runs on the CPU only"

    def installed(self) -> dict[str, str]:
        return versions("numpy")

    def build(self, job: Job) -> ReferenceWorkload:
        return ReferenceWorkload(job)


ADAPTER = ReferenceAdapter()
