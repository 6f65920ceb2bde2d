"""Train a model in Keras on any of its backends; what differs by backend is a subclass of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ... import models
from ...models.model import Model, Weights
from ...workload import Batch, Batches, Job, Unavailable, Workload, batches_on_device, versions
from .model import loss_function, network, optimizer, variables
from .source import has_sparse_gradients

SEED = 0
"""Seed of the dropout masks."""


class KerasWorkload(Workload):
    """Train one model in Keras: `compile`, then `train_on_batch` for each batch.

    `fit` tells the mean loss of an epoch alone, and takes no batches that are on a GPU already. It
    was 1.22 (1.15–1.74) times as long for the LeNet on TensorFlow, 1.83 (1.64–2.53) times for
    mnist_mlp, and not significantly different on JAX and PyTorch (benchmarks/keras_loops.py, two
    cores). train_on_batch brings each step's loss to the host.
    """

    backend: str
    """Name of Keras' backend."""
    jit_compile: Any = "auto"
    """As Model.compile takes it; "auto" is what Keras itself chooses."""

    def __init__(self, job: Job) -> None:
        # before the backend is imported: the libraries of two may not live in one process
        self._require_backend(os.environ.get("KERAS_BACKEND", self.backend))
        self.prepare(job)
        import keras
        from keras.src.backend.common import dtypes

        self._require_backend(keras.config.backend())
        # on JAX and PyTorch the result of an operation on float64 is float32 by Keras' rules: the
        # proof in float64 needs other ones. This and what follows holds for the whole process,
        # which uses one workload at a time
        dtypes.BIT64_TO_BIT32_DTYPE["float64"] = job.dtype
        keras.config.set_floatx(job.dtype)
        keras.config.set_dtype_policy("mixed_bfloat16" if job.is_mixed else job.dtype)
        keras.config.set_epsilon(1e-7)
        keras.config.set_image_data_format("channels_last")
        # of the seeds that the dropouts draw for themselves; with a seed of its own a dropout on
        # PyTorch is a slower one, and draws what the next seed's dropout drew a step before
        keras.utils.set_random_seed(SEED)
        self.keras, self.job = keras, job
        self.model, layers = network(job.model)
        has_sparse = has_sparse_gradients(job.model, self.backend)
        self.optimizer = optimizer(job.model.optimizer, has_sparse)
        loss = loss_function(job.model.loss)
        self.model.compile(self.optimizer, loss, jit_compile=self.jit_compile)
        self.variables = {
            name: mapped
            for named in job.model.all_layers()
            if named.name in layers
            for name, mapped in variables(named, layers[named.name]).items()
        }
        if isinstance(job.model.optimizer, models.AdamW):
            self.optimizer.exclude_from_weight_decay(self._not_decaying(job.model))
        self.optimizer.build(self.model.trainable_variables)
        self.dropouts = self.model.dropouts
        self.seeds = [np.array(seed) for seed in self._seeds()]

    def _not_decaying(self, model: Model) -> list[Any]:
        """Return the variables that have no weight decay."""
        return [
            self.variables[name][0]
            for name, parameter in model.parameters.items()
            if not model.optimizer.weight_decay_of(parameter)
        ]

    def _require_backend(self, found: str) -> None:
        if found != self.backend:
            raise Unavailable(
                f"Keras is on {found} in this process, not on {self.backend}: set "
                f"KERAS_BACKEND={self.backend} before it is imported"
            )

    def prepare(self, job: Job) -> None:
        """Set what the backend must know before Keras is imported or used."""
        raise NotImplementedError

    def load_weights(self, weights: Weights) -> None:
        for name, (variable, to_keras, _) in self.variables.items():
            variable.assign(np.ascontiguousarray(to_keras(weights[name]), self.job.dtype))
        for variable in self.optimizer.variables:
            if variable is not self.optimizer._learning_rate:
                variable.assign(np.zeros(variable.shape, variable.dtype))
        for variable, seed in zip(self._seeds(), self.seeds, strict=True):
            variable.assign(seed)
        self.wait()

    def place(self, batches: Batches) -> None:
        self.batches = batches_on_device(batches, self._to_device)
        self.wait()

    def train_epoch(self) -> np.ndarray:
        losses = [self.model.train_on_batch(*batch) for batch in self.batches]
        self.wait()  # the losses are there before the last update has ended
        return np.array(losses, np.float64)

    def backward_epoch(self) -> Callable[[], Weights]:
        for batch in self.batches:
            gradients = self.backward(*batch)
        self.wait()
        return lambda: self._by_variable(gradients)

    def backward(self, inputs: Any, labels: Any) -> list[Any]:
        """Return the gradients of the trainable variables, by a program as that of the training.

        May change the other variables, as training does.
        """
        raise NotImplementedError

    def predict_batches(self) -> Iterator[np.ndarray]:
        for inputs, _ in self.batches:
            yield self._logits(inputs)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        state = self.model.non_trainable_variables
        before = [self.keras.ops.copy(variable) for variable in state]
        loss, gradients = self.differentiate(*self._to_device(batch))
        for variable, value in zip(state, before, strict=True):
            variable.assign(value)
        return loss, self._by_variable(gradients)

    def differentiate(self, inputs: Any, labels: Any) -> tuple[float, list[Any]]:
        """Return the loss of a batch in training and the gradients of the trainable variables.

        May change the other variables.
        """
        raise NotImplementedError

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self._logits(self._tensor(inputs))

    def _logits(self, inputs: Any) -> np.ndarray:
        """Return the logits of inputs, as `_to_device` gives them, without their dropout masks."""
        if isinstance(inputs, dict):
            inputs = inputs["inputs"]
        return np.asarray(self.model.predict_on_batch(inputs), self.job.dtype)

    def weights(self) -> Weights:
        found = self._canonical({id(v): v for v, *_ in self.variables.values()})
        return {name: found[name] for name in self.job.model.parameters}

    def details(self) -> dict[str, str]:
        return versions("keras") | {
            "backend": self.keras.config.backend(),
            "jit_compile": str(self.model.jit_compile),
        }

    def put(self, array: np.ndarray) -> Any:
        """Return the array as a tensor on the device."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until the device has done all work, or has at least computed the variables."""
        raise NotImplementedError

    def _to_device(self, batch: Batch) -> tuple[Any, Any]:
        """Return the inputs, with the dropout masks if there are any, and the labels."""
        inputs, labels = self._tensor(batch.inputs), self._tensor(batch.labels)
        if not batch.masks:
            return inputs, labels
        masks = {name: self._tensor(mask) for name, mask in batch.masks.items()}
        return {"inputs": inputs, "masks": masks}, labels

    def _tensor(self, array: np.ndarray) -> Any:
        """Return an array on the device, pictures with their channels last."""
        if array.ndim == 4:  # N, C, H, W
            array = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
        return self.put(array)

    def _seeds(self) -> list[Any]:
        """Return the states of the dropouts' random number generators."""
        return [dropout.seed_generator.state for dropout in self.dropouts.values() if dropout.rate]

    def _by_variable(self, gradients: list[Any]) -> Weights:
        """Return the gradients of the trainable variables, in their order, as canonical arrays."""
        by_variable = zip(map(id, self.model.trainable_variables), gradients, strict=True)
        return self._canonical(dict(by_variable))

    def _canonical(self, values: Mapping[int, Any]) -> Weights:
        """Return the values of variables, by their identity, as canonical arrays."""
        to_numpy = self.keras.ops.convert_to_numpy
        return {
            # a copy where it is not one already: a second one would take the time of an epoch's end
            name: np.require(back(to_numpy(values[id(variable)])), requirements=["C", "W", "O"])
            for name, (variable, _, back) in self.variables.items()
            if id(variable) in values
        }
