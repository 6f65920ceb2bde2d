"""Train a model in Equinox by the module that program.py writes.

Equinox's arrays have the canonical axes and order of gates, and its pytrees hold them in the order
of the model's description. So an array's position says its canonical name, and only the bias of a
convolution, (features, 1, 1), has another shape.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from crossbench import models
from crossbench.adapters.jax.workload import JaxArrays
from crossbench.models import Weights
from crossbench.source.module import imported
from crossbench.workload import Batch, Batches, Job, Workload, batches_on_device, versions

from . import PACKAGES
from .program import SEED, training_source


class Masked(eqx.nn.StatefulLayer):
    """Apply a model to an example, or to one with a mask for each of its dropouts, in order."""

    model: Any

    def __call__(self, x: Any, state: Any, *, key: Any = None) -> Any:
        if not isinstance(x, tuple):
            return self.model(x, state, key=key)
        x, masks = x
        return with_masks(self.model, masks)(x, state, key=key)


def with_masks(model: Any, masks: list[Any]) -> Any:
    """Return the model with these dropout masks instead of its own, in the order of the layers."""
    remaining = iter(masks)

    def masked(node: Any) -> Any:
        if not isinstance(node, eqx.nn.Dropout):
            return node
        factor = next(remaining) / (1 - node.p)
        return eqx.nn.Lambda(lambda x: x * factor)

    return jax.tree.map(masked, model, is_leaf=lambda node: isinstance(node, eqx.nn.Dropout))


class EquinoxWorkload(Workload):
    """Drive the module of a model's training.

    trained: the model, its state, the optimizer's, and the key of the dropouts. What is not defined
    here returns None, as Workload's own.
    """

    def __init__(self, job: Job) -> None:
        # this holds for the whole process, which uses one workload at a time
        jax.config.update("jax_enable_x64", job.dtype == "float64")
        # XLA's default on a GPU is TensorFloat-32, which has 10 bits of mantissa
        jax.config.update("jax_default_matmul_precision", "highest")
        self.device, model = jax.devices(job.device)[0], job.model
        self.dropouts = [n.name for n in model.all_layers() if isinstance(n.layer, models.Dropout)]
        # the model's arrays, then those of its state, which are running statistics
        arrays = sorted(model.parameters.items(), key=lambda item: not item[1].trained)
        self.shapes = {name: parameter.shape for name, parameter in arrays}
        self.source_code = training_source(model).module
        self.module = imported(self.source_code)
        build = eqx.nn.make_with_state(lambda: Masked(self.module.make_model()))
        self.skeleton = eqx.filter_eval_shape(build)  # draws no weight

    def load_weights(self, weights: Weights) -> None:
        shapes, others = eqx.partition(
            self.skeleton, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)
        )
        leaves, structure = jax.tree.flatten(shapes)
        named = zip(self.shapes, leaves, strict=True)
        arrays = [weights[n].astype(leaf.dtype).reshape(leaf.shape) for n, leaf in named]
        arrays = jax.device_put(arrays, self.device)
        model, state = eqx.combine(jax.tree.unflatten(structure, arrays), others)
        trained = eqx.filter(model, eqx.is_inexact_array)
        rest = (eqx.filter_jit(self.module.optimizer.init)(trained), jax.random.key(SEED))
        # committed to the device, as the step's results are: otherwise the step compiles twice
        self.trained = (model, state, *jax.device_put(rest, self.device))
        jax.block_until_ready(self.trained)

    def place(self, batches: Batches) -> None:
        self.batches = batches_on_device(batches, self._to_device)
        if not batches.streamed:
            jax.block_until_ready(self.batches)

    def train_epoch(self) -> np.ndarray:
        losses = []
        for batch in self.batches:
            self.trained, loss = self.module.train_step(batch, *self.trained)
            losses.append(loss)
        jax.block_until_ready(self.trained)
        return np.array(jax.device_get(losses), np.float64)

    def backward_epoch(self) -> Callable[[], Weights]:
        model, state, _, key = self.trained
        for batch in self.batches:
            found, gradients = self.module.compute_gradients(model, state, key, batch)
        jax.block_until_ready((found, gradients))
        return lambda: self._canonical(gradients)

    def predict_epoch(self) -> np.ndarray:
        model, state, *_ = self.trained
        logits = [self.module.predict(model, state, inputs) for inputs in self._inputs()]
        return np.stack(jax.device_get(logits))

    def predict_batches(self) -> Iterator[np.ndarray]:
        model, state, *_ = self.trained
        for inputs in self._inputs():
            yield np.array(self.module.predict(model, state, inputs))

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        model, state, _, key = self.trained
        placed = self._to_device(batch)
        (loss, _), gradients = self.module.compute_gradients(model, state, key, placed)
        return float(loss), self._canonical(gradients)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        model, state, *_ = self.trained
        return np.array(self.module.predict(model, state, jax.device_put(inputs, self.device)))

    def weights(self) -> Weights:
        model, state, *_ = self.trained
        return self._canonical((model, state))

    def peak_memory(self) -> int | None:
        return (self.device.memory_stats() or {}).get("peak_bytes_in_use")

    def arrays(self) -> JaxArrays:
        return JaxArrays(self.device, is_mixed=False)

    def details(self) -> dict[str, str]:
        return versions(*PACKAGES) | {"device": self.device.device_kind}

    def _inputs(self) -> Iterator[Any]:
        """Yield the inputs of each batch, without dropout masks."""
        for inputs, _ in self.batches:
            yield inputs[0] if isinstance(inputs, tuple) else inputs

    def _to_device(self, batch: Batch) -> Any:
        """Return the inputs, with the dropout masks if there are any, and the labels."""
        inputs: Any = batch.inputs
        if batch.masks:
            inputs = (inputs, [batch.masks[name] for name in self.dropouts])
        # in memory of its own: on a CPU, JAX would read the caller's
        return jax.device_put((inputs, batch.labels), self.device, may_alias=False)

    def _canonical(self, tree: Any) -> Weights:
        """Return the arrays of a model and its state, or the gradients of a model, by name."""
        arrays = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
        named = zip(self.shapes.items(), arrays, strict=False)  # gradients: the trained ones alone
        return {name: np.array(array).reshape(shape) for (name, shape), array in named}
