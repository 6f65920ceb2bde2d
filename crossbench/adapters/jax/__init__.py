"""JAX: a Flax NNX model and an optax optimizer, one jitted training step.

Flax keeps images as (N, H, W, C) and dense kernels as (in, out). The step works on the
model's parameters as a pytree (Flax's "functional training loop"), called from Python once
a batch: on the CPU a convolution inside lax.scan takes a slow path (jax issue 12868).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...models.layers import Conv, Dense, Flatten, MaxPool, ReLU
from ...models.model import NamedLayer, Weights
from ...models.training import SGD, Loss, Optimizer, SoftmaxCrossEntropy
from ...workload import Adapter, Batches, Job, versions

PACKAGES = ("jax", "jaxlib", "flax", "optax")
GPU_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")


def module(named: NamedLayer, options: dict[str, Any]) -> Any:
    """The layer as a Flax module or a function; options go to every module with parameters."""
    from flax import nnx

    match named.layer:
        case Conv(features, kernel, stride, padding):
            pads = [(p, p) for p in padding]
            channels = named.input_shape[0]
            return nnx.Conv(channels, features, kernel, strides=stride, padding=pads, **options)
        case MaxPool(window, stride):
            return partial(nnx.max_pool, window_shape=window, strides=stride)
        case ReLU():
            return nnx.relu
        case Flatten():
            # the canonical order is C, H, W; XLA folds the transposition into its neighbours
            return lambda x: (x.transpose(0, 3, 1, 2) if x.ndim == 4 else x).reshape(len(x), -1)
        case Dense(features):
            return nnx.Linear(named.input_shape[0], features, **options)
    raise NotImplementedError(f"no translation to Flax of the layer {named.layer}")


def loss_function(loss: Loss) -> Any:
    """A function of (logits, labels) that gives a scalar."""
    import optax

    match loss:
        case SoftmaxCrossEntropy():
            each = optax.softmax_cross_entropy_with_integer_labels
            return lambda logits, labels: each(logits, labels).mean()
    raise NotImplementedError(f"no translation to optax of the loss {loss}")


def transformation(optimizer: Optimizer) -> Any:
    """The optimizer as an optax.GradientTransformation."""
    import optax

    match optimizer:
        case SGD(learning_rate, momentum):
            return optax.sgd(learning_rate, momentum)
    raise NotImplementedError(f"no translation to optax of the optimizer {optimizer}")


# canonical axes to Flax's and back, by the number of axes: kernels O,I,H,W and H,W,I,O; dense
TO_FLAX = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}
FROM_FLAX = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
FLAX_NAMES = {"weight": "kernel", "bias": "bias"}


class JaxWorkload:
    def __init__(self, job: Job) -> None:
        import jax
        import jax.numpy as jnp
        import optax
        from flax import nnx

        # for the whole process: one workload is in use at a time
        jax.config.update("jax_enable_x64", job.dtype == "float64")
        # XLA's default on a GPU is TensorFloat-32, with 10 bits of the mantissa
        jax.config.update("jax_default_matmul_precision", "highest")
        self.jax, self.nnx, self.model = jax, nnx, job.model
        self.device = jax.devices(job.device)[0]
        self.dtype = jnp.dtype(job.dtype)
        # load_weights sets every kernel: drawing them here would cost seconds of compilation
        options = {
            "dtype": self.dtype,
            "param_dtype": self.dtype,
            "kernel_init": nnx.initializers.zeros,
            "rngs": nnx.Rngs(0),
        }
        with jax.default_device(self.device):
            self.layers = {n.name: module(n, options) for n in job.model.named_layers()}
            self.module = nnx.Sequential(*self.layers.values())
        graph, self.parameters = nnx.split(self.module, nnx.Param)
        loss = loss_function(job.model.loss)
        self.optimizer = transformation(job.model.optimizer)

        def logits(parameters: Any, inputs: Any) -> Any:
            return nnx.merge(graph, parameters)(inputs)

        def objective(parameters: Any, inputs: Any, labels: Any) -> Any:
            return loss(logits(parameters, inputs), labels)

        def step(parameters: Any, state: Any, inputs: Any, labels: Any) -> Any:
            value, gradients = jax.value_and_grad(objective)(parameters, inputs, labels)
            updates, state = self.optimizer.update(gradients, state, parameters)
            return optax.apply_updates(parameters, updates), state, value

        self.logits = jax.jit(logits)
        self.value_and_grad = jax.jit(jax.value_and_grad(objective))
        self.step = jax.jit(step, donate_argnums=(0, 1))

    def load_weights(self, weights: Weights) -> None:
        for name, array in weights.items():
            layer, parameter = name.split(".")
            native = array.transpose(TO_FLAX[array.ndim]).astype(self.dtype, order="C")
            variable = getattr(self.layers[layer], FLAX_NAMES[parameter])
            variable.set_value(self.jax.device_put(native, self.device))
        _, self.parameters = self.nnx.split(self.module, self.nnx.Param)
        # committed to the device, as what the step gives back: else it is compiled twice
        state = self.jax.jit(self.optimizer.init)(self.parameters)
        self.state = self.jax.device_put(state, self.device)
        self.jax.block_until_ready((self.parameters, self.state))

    def place(self, batches: Batches) -> None:
        self.batches = [
            (self._inputs(inputs), self.jax.device_put(labels, self.device))
            for inputs, labels in zip(batches.inputs, batches.labels, strict=True)
        ]
        self.jax.block_until_ready(self.batches)

    def train_epoch(self) -> np.ndarray:
        losses = []
        parameters, state = self.parameters, self.state
        for inputs, labels in self.batches:
            parameters, state, loss = self.step(parameters, state, inputs, labels)
            losses.append(loss)
        self.parameters, self.state = parameters, state
        self.jax.block_until_ready((parameters, state, losses))
        return np.array([float(loss) for loss in losses])

    def loss_and_gradients(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, Weights]:
        labels = self.jax.device_put(labels, self.device)
        loss, gradients = self.value_and_grad(self.parameters, self._inputs(inputs), labels)
        return float(loss), self._canonical(gradients)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(self.logits(self.parameters, self._inputs(inputs)))

    def weights(self) -> Weights:
        return self._canonical(self.parameters)

    def peak_memory(self) -> int | None:
        if self.device.platform == "cpu":
            return None
        return (self.device.memory_stats() or {}).get("peak_bytes_in_use")

    def threads(self) -> int | None:
        return None  # XLA takes as many as the process may use, and does not say

    def epoch_figures(self) -> dict[str, float]:
        return {}

    def allocated(self) -> int | None:
        """By XLA's own plan of the step's buffers, which it follows to the byte."""
        step = self.step.lower(self.parameters, self.state, *self.batches[0]).compile()
        plan = step.memory_analysis()
        if plan is None:
            return None
        new = plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
        return new * len(self.batches)

    def matrix_product(self, size: int) -> Callable[[], None]:
        random = np.random.default_rng(0).random((2, size, size), np.float32)
        a, b = (self.jax.device_put(matrix, self.device) for matrix in random)
        product = self.jax.jit(self.jax.numpy.matmul)
        return lambda: product(a, b).block_until_ready()

    def copy(self, size: int) -> Callable[[], None]:
        source = self.jax.device_put(np.ones(size // 4, np.float32), self.device)
        copy = self.jax.jit(self.jax.numpy.copy)
        return lambda: copy(source).block_until_ready()

    def details(self) -> dict[str, str]:
        details = versions(*PACKAGES)
        if self.device.platform == "cpu":
            return details | {"BLAS": "XLA's own"}
        return details | {
            "GPU": self.device.device_kind,
            "CUDA": self.device.client.platform_version,
        }

    def _inputs(self, images: np.ndarray) -> Any:
        if images.ndim == 4:  # N, C, H, W
            images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        return self.jax.device_put(images, self.device)

    def _canonical(self, tree: Any) -> Weights:
        """Parameters, or their gradients, under the canonical names and axes."""
        by_path = {tuple(map(str, path)): leaf for path, leaf in self.nnx.to_flat_state(tree)}
        weights = {}
        for index, name in enumerate(self.layers):
            for canonical, flax_name in FLAX_NAMES.items():
                leaf = by_path.get(("layers", str(index), flax_name))
                if leaf is not None:
                    array = np.asarray(leaf[...])
                    weights[f"{name}.{canonical}"] = array.transpose(FROM_FLAX[array.ndim])
        return weights


class JaxAdapter(Adapter):
    title = "JAX/Flax"

    def available(self, device: str) -> str | None:
        installed = self.installed()
        missing = [name for name in PACKAGES if name not in installed]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            return f"{', '.join(missing)} {verb} not installed: pip install 'crossbench[jax]'"
        if device == "gpu" and not any(name in installed for name in GPU_PLUGINS):
            return "jax has no GPU plugin: pip install 'jax[cuda13]'"
        return None

    def installed(self) -> dict[str, str]:
        return versions(*PACKAGES, *GPU_PLUGINS)

    def environment(self, device: str, threads: int) -> dict[str, str]:
        return {
            "JAX_PLATFORMS": "cpu" if device == "cpu" else "cuda,cpu",
            # other frameworks' workers share the GPU, and the peak must be what was needed
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }

    def build(self, job: Job) -> JaxWorkload:
        return JaxWorkload(job)


ADAPTER = JaxAdapter()
