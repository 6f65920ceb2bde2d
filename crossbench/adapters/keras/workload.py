"""Train a model in Keras by the module that program.py writes, on any of its backends.

What differs by backend is a subclass of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ... import models
from ...models.model import Weights
from ...source.module import imported
from ...source.places import channels_first
from ...workload import Batch, Batches, Job, Unavailable, Workload, batches_on_device, versions
from .parameters import arrays_by_path
from .program import training_source


class KerasWorkload(Workload):
    """Train one model in Keras: `compile`, then `train_on_batch` for each batch.

    `fit` tells the mean loss of an epoch alone, and takes no batches that are on a GPU already. It
    was 1.22 (1.15–1.74) times as long for the LeNet on TensorFlow, 1.83 (1.64–2.53) times for
    mnist_mlp, and not significantly different on JAX and PyTorch (benchmarks/keras_loops.py, two
    cores). train_on_batch brings each step's loss to the host.
    """

    backend: str
    """Name of Keras' backend."""
    jit_compile = False
    """Whether XLA compiles the step where Keras itself would not have it do so."""

    def __init__(self, job: Job) -> None:
        # before the backend is imported: the libraries of two may not live in one process
        self._require_backend(os.environ.get("KERAS_BACKEND", self.backend))
        self.prepare(job)
        import keras

        from . import float64

        self._require_backend(keras.config.backend())
        # this and what follows holds for the whole process, which uses one workload at a time
        keras.utils.clear_session()  # the numbers in the names of layers, and a policy
        float64.set_results(job.dtype)
        keras.config.set_floatx(job.dtype)
        keras.config.set_dtype_policy("mixed_bfloat16" if job.is_mixed else job.dtype)
        keras.config.set_epsilon(1e-7)
        keras.config.set_image_data_format("channels_last")
        self.keras, self.job = keras, job
        written = training_source(job.model, self.backend, self.jit_compile)
        self.source_code = written.module
        with drawing_nothing():
            self.module = imported(self.source_code)
        self.model, self.optimizer = self.module.model, self.module.optimizer
        if job.dtype == "float64":
            float64.install()
            float64.set_exact(self.optimizer)
        self.optimizer.build(self.model.trainable_variables)
        of_paths = {variable.path: variable for variable in self.model.weights}
        self.variables = {
            name: (of_paths[place.path], place) for name, place in written.network.places().items()
        }
        self.dropouts = dict(zip(self._dropouts(), self._names_of_dropouts(), strict=True))
        self.masked = self._masked() if self.dropouts else None
        self.seeds = [np.array(seed) for seed in self._seeds()]

    def _masked(self) -> Any:
        """Return the model that takes masks too, compiled as the model is."""
        from .masked import Masked

        model = Masked(self.model, {id(layer): name for layer, name in self.dropouts.items()})
        how = {"loss": self.model.loss, "jit_compile": self.model.jit_compile}
        model.compile(self.optimizer, **how)
        return model

    def _dropouts(self) -> list[Any]:
        """Return the model's own dropouts, in the order in which they were made."""
        kind = self.keras.layers.Dropout
        own = [layer for layer in self.model.layers if isinstance(layer, kind)]
        return sorted(own, key=lambda layer: int(layer.name.partition("_")[2] or 0))

    def _names_of_dropouts(self) -> list[str]:
        layers = self.job.model.all_layers()
        return [named.name for named in layers if isinstance(named.layer, models.Dropout)]

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
        places = {name: place for name, (_, place) in self.variables.items()}
        arrays = arrays_by_path(places, weights)
        for variable, place in self.variables.values():
            variable.assign(np.ascontiguousarray(arrays[place.path], self.job.dtype))
        start = getattr(self.job.model.optimizer, "initial_accumulator", 0.0)
        for variable in self.optimizer.variables:
            if variable is not self.optimizer._learning_rate:
                value = 0 if variable is self.optimizer.iterations else start
                variable.assign(np.full(variable.shape, value, variable.dtype))
        for variable, seed in zip(self._seeds(), self.seeds, strict=True):
            variable.assign(seed)
        self.wait()

    def place(self, batches: Batches) -> None:
        self.batches = batches_on_device(batches, self._to_device)
        self.wait()

    def train_epoch(self) -> np.ndarray:
        losses = [self.of(inputs).train_on_batch(inputs, labels) for inputs, labels in self.batches]
        self.wait()  # the losses are there before the last update has ended
        return np.array(losses, np.float64)

    def of(self, inputs: Any) -> Any:
        """Return the model that takes such inputs: with dropout masks it is another one."""
        return self.masked if isinstance(inputs, dict) else self.model

    def backward_epoch(self) -> Callable[[], Weights]:
        for batch in self.batches:
            _, gradients = self.backward(*batch)
        self.wait()
        return lambda: self._by_variable(gradients)

    def backward(self, inputs: Any, labels: Any) -> tuple[Any, list[Any]]:
        """Return a batch's loss and the gradients of the trainable variables, by a program as that
        of the training.

        May change the other variables, as training does.
        """
        raise NotImplementedError

    def predict_batches(self) -> Iterator[np.ndarray]:
        for inputs, _ in self.batches:
            yield self._logits(inputs)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        state = self.model.non_trainable_variables
        before = [self.keras.ops.copy(variable) for variable in state]
        loss, gradients = self.backward(*self._to_device(batch))
        for variable, value in zip(state, before, strict=True):
            variable.assign(value)
        return float(loss), self._by_variable(gradients)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self._logits(self._tensor(inputs))

    def _logits(self, inputs: Any) -> np.ndarray:
        """Return the logits of inputs, as `_to_device` gives them, without their dropout masks."""
        if isinstance(inputs, dict):
            inputs = inputs["inputs"]
        outputs = np.asarray(self.model.predict_on_batch(inputs), self.job.dtype)
        return channels_first(outputs, self.job.model.output_shape)

    def weights(self) -> Weights:
        found = self._canonical({id(v): v for v, _ in self.variables.values()})
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
        return [dropout.seed_generator.state for dropout in self.dropouts if dropout.rate]

    def _by_variable(self, gradients: list[Any]) -> Weights:
        """Return the gradients of the trainable variables, in their order, as canonical arrays."""
        by_variable = zip(map(id, self.model.trainable_variables), gradients, strict=True)
        return self._canonical(dict(by_variable))

    def _canonical(self, values: Mapping[int, Any]) -> Weights:
        """Return the values of variables, by their identity, as canonical arrays."""
        to_numpy = self.keras.ops.convert_to_numpy
        return {
            # a copy where it is not one already: a second one would take the time of an epoch's end
            name: np.require(
                place.from_framework(to_numpy(values[id(variable)])), requirements=["C", "W", "O"]
            )
            for name, (variable, place) in self.variables.items()
            if id(variable) in values
        }


@contextmanager
def drawing_nothing() -> Iterator[None]:
    """Have Keras' initializers return zeros: `load_weights` sets every parameter, and random values
    would cost seconds of compilation.
    """
    from keras.src.initializers import random_initializers

    random = random_initializers.RandomInitializer
    kinds: list[Any] = [
        kind
        for kind in vars(random_initializers).values()
        if isinstance(kind, type) and issubclass(kind, random) and "__call__" in vars(kind)
    ]
    drawn = [kind.__call__ for kind in kinds]
    zeros = random_initializers.ops.zeros

    def draw(self: Any, shape: Any, dtype: Any = None, **unused: Any) -> Any:
        return zeros(shape, dtype)

    for kind in kinds:
        kind.__call__ = draw
    try:
        yield
    finally:
        for kind, own in zip(kinds, drawn, strict=True):
            kind.__call__ = own
