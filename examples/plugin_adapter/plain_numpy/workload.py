"""The workload: one model with its weights, its optimizer and its data, in a worker process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crossbench.models import SGD, SoftmaxCrossEntropy, Weights
from crossbench.workload import (
    Batch,
    Batches,
    DeviceArrays,
    Job,
    Workload,
    batches_on_device,
    versions,
)

from .layers import translate


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


class PlainNumpyWorkload(Workload):
    def __init__(self, job: Job) -> None:
        loss, optimizer = job.model.loss, job.model.optimizer
        if not isinstance(loss, SoftmaxCrossEntropy):
            raise NotImplementedError(f"plain NumPy does not support the loss {loss}")
        if not isinstance(optimizer, SGD):
            raise NotImplementedError(f"plain NumPy does not support the optimizer {optimizer}")
        self.dtype, self.optimizer = np.dtype(job.dtype), optimizer
        self.layers = [translate(named) for named in job.model.named_layers()]

    def load_weights(self, weights: Weights) -> None:
        self.parameters = {name: array.astype(self.dtype) for name, array in weights.items()}
        self.velocity = {name: np.zeros_like(array) for name, array in self.parameters.items()}

    def place(self, batches: Batches) -> None:
        self.batches = batches_on_device(batches, _copy)

    def train_epoch(self) -> np.ndarray:
        losses = []
        for batch in self.batches:
            loss, gradients = self.loss_and_gradients(batch)
            for name, gradient in gradients.items():
                self.velocity[name] = self.optimizer.momentum * self.velocity[name] + gradient
                self.parameters[name] -= self.optimizer.learning_rate * self.velocity[name]
            losses.append(loss)
        return np.array(losses)

    def predict_batches(self) -> Iterator[np.ndarray]:
        return (self.predict(batch.inputs) for batch in self.batches)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        logits = self.predict(batch.inputs)
        shifted = logits - logits.max(1, keepdims=True)
        log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        rows = np.arange(len(batch.labels))
        loss = -float(log_softmax[rows, batch.labels].mean())
        dy = np.exp(log_softmax)
        dy[rows, batch.labels] -= 1
        dy /= len(rows)
        gradients: Weights = {}
        for layer in reversed(self.layers):
            dy = layer.backward(dy, gradients)
        return loss, gradients

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        x = inputs.astype(self.dtype, copy=False)
        for layer in self.layers:
            x = layer.forward(x, self.parameters)
        return x

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self.parameters.items()}

    def arrays(self) -> NumpyArrays:
        return NumpyArrays()

    def details(self) -> dict[str, str]:
        return versions("numpy")


def _copy(batch: Batch) -> Batch:
    """Return the batch in memory of the workload's own: the device of NumPy is this memory."""
    return Batch(batch.inputs.copy(), batch.labels.copy())
