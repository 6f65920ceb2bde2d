"""Train a model in Equinox: its layers vmapped over the batch, and an optax optimizer.

Equinox's arrays have the canonical axes and order of gates, and its pytrees hold them in the order
of the model's description. So an array's position says its canonical name, and only the bias of a
convolution, (features, 1, 1), has another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import crossbench_equinox_program as program
import numpy as np

from crossbench import models
from crossbench.adapters.jax.workload import JaxArrays
from crossbench.data import Dataset
from crossbench.models import NamedLayer, Weights
from crossbench.source.training_programs import Training
from crossbench.workload import Adapter, Batch, Batches, Job, Workload, batches_on_device, versions

PACKAGES = ("equinox", "jax", "optax")
GPU_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
SEED = 0
"""Seed of the dropout masks."""


@cache
def modules() -> SimpleNamespace:
    """Define the modules that Equinox lacks: when called, as only a worker may import Equinox."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    class BatchNorm(eqx.nn.StatefulLayer):
        """Normalize by the batch, and keep running statistics with a variance over n - 1.

        eqx.nn.BatchNorm takes the variance over n, and divides both by 1 - momentum ** steps.
        """

        weight: Any
        bias: Any
        running: eqx.nn.StateIndex[Any]
        epsilon: float = eqx.field(static=True)
        momentum: float = eqx.field(static=True)
        inference: bool = False

        def __call__(self, x: Any, state: eqx.nn.State, *, key: Any = None) -> Any:
            running, x = state.get(self.running), x.T  # the channels are last
            mean, variance = running
            if not self.inference:
                axes = tuple(range(x.ndim - 1))
                mean = jax.lax.pmean(x.mean(axes), "batch")
                variance = jax.lax.pmean(((x - mean) ** 2).mean(axes), "batch")
                n = x[..., 0].size * jax.lax.axis_size("batch")
                batch, momentum = (mean, variance * n / (n - 1)), self.momentum
                moved = jax.tree.map(lambda r, b: momentum * r + (1 - momentum) * b, running, batch)
                state = state.set(self.running, moved)
            y = self.weight * (x - mean) / jnp.sqrt(variance + self.epsilon) + self.bias
            return y.T, state

    class Recurrent(eqx.Module):
        """Run a cell, and a second one along the reversed sequence; return their last outputs."""

        cells: list[Any]

        def __call__(self, xs: Any, *, key: Any = None) -> Any:
            outputs = []
            for cell, reverse in zip(self.cells, (False, True), strict=False):
                zeros = jnp.zeros(cell.hidden_size)
                start = (zeros, zeros) if isinstance(cell, eqx.nn.LSTMCell) else zeros
                end, _ = jax.lax.scan(
                    lambda state, x, cell=cell: (cell(x, state), None), start, xs, reverse=reverse
                )
                outputs.append(jax.tree.leaves(end)[0])  # an LSTM's state is (output, cell)
            return jnp.concatenate(outputs)

    class Residual(eqx.nn.StatefulLayer):
        """Add the outputs of the body and of the shortcut."""

        body: eqx.nn.Sequential
        shortcut: eqx.nn.Sequential

        def __call__(self, x: Any, state: eqx.nn.State, *, key: Any = None) -> Any:
            keys = (None, None) if key is None else jax.random.split(key)
            y, state = self.body(x, state, key=keys[0])
            z, state = self.shortcut(x, state, key=keys[1])
            return y + z, state

    return SimpleNamespace(BatchNorm=BatchNorm, Recurrent=Recurrent, Residual=Residual)


def module(named: NamedLayer) -> Any:
    """Return a layer as an Equinox module; `load_weights` replaces its initial values."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    nn, own, key, inputs = eqx.nn, modules(), jax.random.key(SEED), named.input_shape
    match named.layer:
        case models.Conv(features, kernel, stride, padding, bias):
            window = (kernel, stride, padding)
            return nn.Conv2d(inputs[0], features, *window, use_bias=bias, key=key)
        case models.MaxPool(window, stride):
            return nn.MaxPool2d(window, stride)
        case models.ReLU():
            return nn.Lambda(jax.nn.relu)
        case models.GELU():
            return nn.Lambda(partial(jax.nn.gelu, approximate=False))
        case models.Flatten():
            return nn.Lambda(jnp.ravel)
        case models.Dense(features):
            return nn.Linear(inputs[0], features, key=key)
        case models.BatchNorm(epsilon, momentum):
            values = jnp.zeros(inputs[0])
            index = nn.StateIndex((values, values))
            return own.BatchNorm(values, values, index, epsilon, momentum)
        case models.Dropout(rate):
            return nn.Dropout(rate)
        case models.GlobalAveragePool():
            return nn.Lambda(partial(jnp.mean, axis=0 if len(inputs) == 2 else (1, 2)))
        case models.Embedding(vocabulary, features):
            return nn.Lambda(eqx.filter_vmap(nn.Embedding(vocabulary, features, key=key)))
        case models.OneHot(vocabulary):
            return nn.Lambda(partial(jax.nn.one_hot, num_classes=vocabulary))
        case models.LSTM(features, bidirectional):
            cell = nn.LSTMCell(inputs[-1], features, key=key)
            return own.Recurrent([cell] * (1 + bidirectional))
        case models.GRU(features, bidirectional):
            gru = nn.GRUCell(inputs[-1], features, key=key)
            # the description has no bias inside the reset; what is no array is not trained
            gru = eqx.tree_at(lambda gru: gru.bias_n, gru, 0.0)
            return own.Recurrent([gru] * (1 + bidirectional))
        case models.Residual():
            branches = (named.body, named.shortcut)
            return own.Residual(*(nn.Sequential([*map(module, branch)]) for branch in branches))
    raise NotImplementedError(f"the Equinox adapter does not support the layer {named.layer}")


def with_masks(model: Any, masks: list[Any]) -> Any:
    """Return the model with these dropout masks instead of its own, in the order of the layers."""
    import equinox as eqx
    import jax

    remaining = iter(masks)

    def masked(node: Any) -> Any:
        if not isinstance(node, eqx.nn.Dropout):
            return node
        factor = next(remaining) / (1 - node.p)
        return eqx.nn.Lambda(lambda x: x * factor)

    return jax.tree.map(masked, model, is_leaf=lambda node: isinstance(node, eqx.nn.Dropout))


def loss_function(loss: models.Loss) -> Any:
    """Return the loss as a function of (logits, labels), for each example."""
    import optax

    match loss:
        case models.SoftmaxCrossEntropy():
            return optax.softmax_cross_entropy_with_integer_labels
        case models.BinaryCrossEntropy():
            return lambda logits, labels: optax.sigmoid_binary_cross_entropy(logits[:, 0], labels)
        case models.MeanSquaredError():
            return lambda outputs, targets: optax.squared_error(outputs, targets).mean(1)
        case models.GivenGradient():
            return given_gradient()
    raise NotImplementedError(f"the Equinox adapter does not support the loss {loss}")


def given_gradient() -> Any:
    """Return a function of (outputs, labels) that is 0, and whose gradient is the labels."""
    import jax

    zero: Any = jax.custom_vjp(lambda outputs, labels: outputs.dtype.type(0))
    zero.defvjp(
        lambda outputs, labels: (outputs.dtype.type(0), labels), lambda labels, _: (labels, None)
    )
    return zero


def transformation(optimizer: models.Optimizer) -> Any:
    """Return the optimizer as an optax.GradientTransformation."""
    import optax

    match optimizer:
        case models.SGD(rate, momentum):
            return optax.sgd(rate, momentum)
        case models.Adam(rate, beta1, beta2, epsilon):
            return optax.adam(rate, beta1, beta2, epsilon)
        case models.RMSprop(rate, rho, epsilon, schedule=models.InverseTimeDecay(decay)):
            schedule = lambda step: rate / (1 + decay * step)  # noqa: E731
            return optax.rmsprop(schedule, rho, epsilon, eps_in_sqrt=False)
        case models.RMSprop(rate, rho, epsilon):
            return optax.rmsprop(rate, rho, epsilon, eps_in_sqrt=False)
        case models.Adadelta(rate, rho, epsilon):
            return optax.adadelta(rate, rho, epsilon)
    raise NotImplementedError(f"the Equinox adapter does not support the optimizer {optimizer}")


class EquinoxWorkload(Workload):
    """Train one model in Equinox; what is not defined here returns None, as Workload's own."""

    def __init__(self, job: Job) -> None:
        import equinox as eqx
        import jax

        # this holds for the whole process, which uses one workload at a time
        jax.config.update("jax_enable_x64", job.dtype == "float64")
        # XLA's default on a GPU is TensorFloat-32, which has 10 bits of mantissa
        jax.config.update("jax_default_matmul_precision", "highest")
        self.eqx, self.jax, self.device = eqx, jax, jax.devices(job.device)[0]
        model = job.model
        self.dropouts = [n.name for n in model.all_layers() if isinstance(n.layer, models.Dropout)]
        # the model's arrays, then those of its state, which are running statistics
        arrays = sorted(model.parameters.items(), key=lambda item: not item[1].trained)
        self.shapes = {name: parameter.shape for name, parameter in arrays}
        build = eqx.nn.make_with_state(eqx.nn.Sequential)
        self.skeleton = eqx.filter_eval_shape(lambda: build([*map(module, model.named_layers())]))
        self.optimizer, loss = transformation(model.optimizer), loss_function(model.loss)

        @eqx.filter_jit
        def logits(model: Any, state: Any, inputs: Any) -> Any:
            model = eqx.nn.inference_mode(model)
            return jax.vmap(lambda x: model(x, state)[0])(inputs)

        @eqx.filter_value_and_grad(has_aux=True)
        def differentiated(model: Any, state: Any, key: Any, batch: Any) -> Any:
            """Return the loss, and the running statistics after it with the outputs."""
            inputs, labels, masks = batch

            def forward(x: Any, key: Any, masks: list[Any]) -> Any:
                return (with_masks(model, masks) if masks else model)(x, state, key=key)

            keys = jax.random.split(key, len(labels))
            batched = jax.vmap(forward, axis_name="batch", out_axes=(0, None))
            outputs, after = batched(inputs, keys, masks)
            return loss(outputs, labels).mean(), (after, outputs)

        @eqx.filter_jit(donate="all-except-first")
        def step(batch: Any, model: Any, state: Any, optimizer_state: Any, key: Any) -> Any:
            key, own_key = jax.random.split(key)
            (value, (state, _)), gradients = differentiated(model, state, own_key, batch)
            trained = eqx.filter(model, eqx.is_inexact_array)
            updates, optimizer_state = self.optimizer.update(gradients, optimizer_state, trained)
            return (eqx.apply_updates(model, updates), state, optimizer_state, key), value

        self.logits, self.step = logits, step
        self.value_and_grad = eqx.filter_jit(differentiated)

    def load_weights(self, weights: Weights) -> None:
        shapes, others = self.eqx.partition(
            self.skeleton, lambda leaf: isinstance(leaf, self.jax.ShapeDtypeStruct)
        )
        leaves, structure = self.jax.tree.flatten(shapes)
        named = zip(self.shapes, leaves, strict=True)
        arrays = [weights[n].astype(leaf.dtype).reshape(leaf.shape) for n, leaf in named]
        arrays = self.jax.device_put(arrays, self.device)
        model, state = self.eqx.combine(self.jax.tree.unflatten(structure, arrays), others)
        trained = self.eqx.filter(model, self.eqx.is_inexact_array)
        rest = (self.eqx.filter_jit(self.optimizer.init)(trained), self.jax.random.key(SEED))
        # committed to the device, as the step's results are: otherwise the step compiles twice
        self.trained = (model, state, *self.jax.device_put(rest, self.device))
        self.jax.block_until_ready(self.trained)

    def place(self, batches: Batches) -> None:
        self.batches = batches_on_device(batches, self._to_device)
        if not batches.streamed:
            self.jax.block_until_ready(self.batches)

    def train_epoch(self) -> np.ndarray:
        losses = []
        for batch in self.batches:
            self.trained, loss = self.step(batch, *self.trained)
            losses.append(loss)
        self.jax.block_until_ready(self.trained)
        return np.array(self.jax.device_get(losses), np.float64)

    def backward_epoch(self) -> Callable[[], Weights]:
        model, state, _, key = self.trained
        for batch in self.batches:
            found, gradients = self.value_and_grad(model, state, key, batch)
        self.jax.block_until_ready((found, gradients))
        return lambda: self._canonical(gradients)

    def predict_epoch(self) -> np.ndarray:
        model, state, *_ = self.trained
        logits = [self.logits(model, state, inputs) for inputs, *_ in self.batches]
        return np.stack(self.jax.device_get(logits))

    def predict_batches(self) -> Iterator[np.ndarray]:
        model, state, *_ = self.trained
        for inputs, *_ in self.batches:
            yield np.array(self.logits(model, state, inputs))

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        model, state, _, key = self.trained
        (loss, _), gradients = self.value_and_grad(model, state, key, self._to_device(batch))
        return float(loss), self._canonical(gradients)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        model, state, *_ = self.trained
        return np.array(self.logits(model, state, self.jax.device_put(inputs, self.device)))

    def weights(self) -> Weights:
        model, state, *_ = self.trained
        return self._canonical((model, state))

    def peak_memory(self) -> int | None:
        return (self.device.memory_stats() or {}).get("peak_bytes_in_use")

    def arrays(self) -> JaxArrays:
        return JaxArrays(self.device, is_mixed=False)

    def details(self) -> dict[str, str]:
        return versions(*PACKAGES) | {"device": self.device.device_kind}

    def _to_device(self, batch: Batch) -> Any:
        masks = [batch.masks[name] for name in self.dropouts] if batch.masks else []
        arrays = (batch.inputs, batch.labels, masks)
        # in memory of its own: on a CPU, JAX would read the caller's
        return self.jax.device_put(arrays, self.device, may_alias=False)

    def _canonical(self, tree: Any) -> Weights:
        """Return the arrays of a model and its state, or the gradients of a model, by name."""
        arrays = self.jax.tree.leaves(self.eqx.filter(tree, self.eqx.is_inexact_array))
        named = zip(self.shapes.items(), arrays, strict=False)  # gradients: the trained ones alone
        return {name: np.array(array).reshape(shape) for (name, shape), array in named}


class EquinoxAdapter(Adapter):
    """Build models in Equinox as its tutorials do."""

    title = "Equinox"

    def available(self, device: str) -> str | None:
        if absent := [package for package in PACKAGES if not versions(package)]:
            return f"not installed: pip install {' '.join(absent)}"
        if device == "gpu" and not versions(*GPU_PLUGINS):
            return "jax has no GPU plugin: pip install 'jax[cuda13]'"
        return None

    def installed(self) -> dict[str, str]:
        return versions(*PACKAGES, *GPU_PLUGINS)

    def required_environment(self, device: str) -> dict[str, str]:
        return {
            "JAX_PLATFORMS": "cpu" if device == "cpu" else "cuda,cpu",
            # a preallocated pool would be the peak, and gone for the other workers on the GPU
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            # a first epoch compiles, whatever the user's other programs have compiled before
            "JAX_ENABLE_COMPILATION_CACHE": "false",
        }

    def build(self, job: Job) -> EquinoxWorkload:
        return EquinoxWorkload(job)

    def training_program(self, training: Training) -> str:
        return program.training_program(training)

    def initial_arrays(self, training: Training, weights: Weights) -> dict[str, np.ndarray]:
        return program.initial_arrays(training, weights)

    def example_arrays(self, training: Training, dataset: Dataset) -> dict[str, np.ndarray]:
        return program.example_arrays(training, dataset)


ADAPTER = EquinoxAdapter()
