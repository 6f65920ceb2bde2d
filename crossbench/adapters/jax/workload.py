"""Train a model in JAX: a Flax NNX model and an optax optimizer in one jitted training step.

Flax keeps images as (N, H, W, C) and dense kernels as (in, out). The step works on the model's
parameters as a pytree (Flax's "functional training loop"). Python calls it once per batch: on the
CPU a convolution inside lax.scan takes a slow path (jax issue 12868).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ... import models
from ...inputs.names import TF32
from ...models.model import NamedLayer, Weights
from ...workload import (
    Batch,
    Batches,
    DeviceArrays,
    Job,
    Workload,
    batches_on_device,
    versions,
)
from .model import (
    FROM_FLAX,
    TO_FLAX,
    ParameterPath,
    canonical_names,
    loss_function,
    module,
    paths,
    sequential,
    transformation,
)

PACKAGES = ("jax", "jaxlib", "flax", "optax")
SEED = 0
"""Seed of the dropout masks."""


class JaxArrays(DeviceArrays):
    """Multiply and copy arrays on a device, into memory that an earlier array gives up.

    Without that, each result is in memory that the kernel has to clear first: on a CPU the copy
    reached a quarter of its speed.
    """

    def __init__(self, device: Any, is_mixed: bool) -> None:
        import jax
        import jax.numpy as jnp

        self.dtype = jnp.bfloat16 if is_mixed else jnp.float32

        def multiply(a: Any, b: Any, into: Any) -> Any:
            return jnp.matmul(a, b)

        def copy(source: Any, into: Any) -> Any:
            return jnp.copy(source)

        self.jax, self.device = jax, device
        self.compiled_multiply = jax.jit(multiply, donate_argnums=2, keep_unused=True)
        self.compiled_copy = jax.jit(copy, donate_argnums=1, keep_unused=True)

    def put(self, array: np.ndarray) -> Any:
        # in memory of its own: on a CPU the array's would be used
        return self.jax.device_put(array, self.device, may_alias=False).block_until_ready()

    def operand(self, array: np.ndarray) -> Any:
        return self.put(array.astype(self.dtype))

    def fetch(self, array: Any, step: int = 1) -> np.ndarray:
        # of a new array: this one would keep what is fetched from a GPU until a call that is timed
        copied = array[::step] if step > 1 else self.jax.numpy.copy(array)
        return np.asarray(copied, np.float32)

    def address(self, array: Any) -> int:
        return array.unsafe_buffer_pointer()

    def multiply(self, a: Any, b: Any, into: Any) -> Any:
        return self.compiled_multiply(a, b, into).block_until_ready()

    def copy(self, source: Any, into: Any) -> Any:
        return self.compiled_copy(source, into).block_until_ready()


class JaxRuntime(Workload):
    """Set JAX up for a job, and answer for it and its device: for Keras' workload on it too.

    XLA's allocator frees no memory, and XLA does not tell how many threads it uses.
    """

    def prepare(self, job: Job) -> None:
        """Import JAX, and set what holds for the process, which uses one workload at a time."""
        import jax

        jax.config.update("jax_enable_x64", job.dtype == "float64")
        # XLA's default on a GPU is TensorFloat-32
        precision = "tensorfloat32" if job.compute == TF32 else "highest"
        jax.config.update("jax_default_matmul_precision", precision)
        self.jax, self.is_mixed = jax, job.is_mixed
        self.device = jax.devices(job.device)[0]

    def peak_memory(self) -> int | None:
        if self.device.platform == "cpu":
            return None
        return (self.device.memory_stats() or {}).get("peak_bytes_in_use")

    def arrays(self) -> JaxArrays:
        return JaxArrays(self.device, self.is_mixed)

    def gpu_details(self) -> dict[str, str]:
        """Return the GPU's name and the version of CUDA; nothing on a CPU."""
        if self.device.platform == "cpu":
            return {}
        version = " ".join(self.device.client.platform_version.split())
        return {"GPU": self.device.device_kind, "CUDA": version}


class JaxWorkload(JaxRuntime):
    def __init__(self, job: Job) -> None:
        self.prepare(job)
        import jax.numpy as jnp
        from flax import nnx

        from . import layers

        self.nnx, self.model, self.described = nnx, job.model, job.model.parameters
        self.dtype = jnp.dtype(job.dtype)
        self.names = canonical_names(job.model.named_layers())
        self.dropouts = dict(paths(job.model.named_layers()))
        self.loss = loss_function(job.model.loss)
        self.optimizer = transformation(job.model.optimizer, self._decays)

        def create() -> Any:
            dtype = jnp.bfloat16 if job.is_mixed else self.dtype
            options = {"dtype": dtype, "param_dtype": self.dtype, "rngs": nnx.Rngs(SEED)}
            return layers.tied(sequential(job.model.named_layers(), options, self.build_layer))

        with self.jax.default_device(self.device):
            # a single program: each layer by itself compiles several
            self.module = nnx.jit(create)()
        self.module.eval()
        self.eval_graphdef = self.graphdef()
        self.module.train()
        objective = self.objective(self.graphdef())
        self.differentiated = self.jax.value_and_grad(objective, has_aux=True)
        self.value_and_grad = self.jax.jit(self.differentiated)
        self.backward = self.jax.jit(self.untraced_backward)
        self.step = self.jax.jit(self.untraced_step, donate_argnums=(0, 1))
        self.logits = self.jax.jit(self.untraced_logits)

    def graphdef(self) -> Any:
        """Return what `nnx.merge` makes a module of, as it is now: in training or not."""
        return self.nnx.split(self.module, self.nnx.Param, ...)[0]

    def untraced_logits(self, parameters: Any, others: Any, inputs: Any) -> Any:
        module = self.nnx.merge(self.eval_graphdef, parameters, others)
        return module(inputs).astype(self.dtype)

    def objective(self, graphdef: Any) -> Any:
        """Return the function of the loss of a batch in training mode.

        It returns the loss, and the running statistics and dropouts' counters after it, with the
        outputs where there is no loss: XLA leaves out what no result needs.
        """
        from . import layers

        without_loss = isinstance(self.model.loss, models.GivenGradient)

        def batch_loss(parameters: Any, others: Any, inputs: Any, labels: Any, masks: Any) -> Any:
            # copied, since the pass changes `others` in place
            module = self.nnx.merge(graphdef, parameters, others, copy=True)
            layers.set_masks(module, {self.dropouts[name]: mask for name, mask in masks.items()})
            outputs = module(inputs).astype(self.dtype)
            loss = self.loss(outputs, labels)
            _, _, _, others = self.nnx.split(module, self.nnx.Param, layers.Mask, ...)
            return loss, (others, outputs if without_loss else None)

        return batch_loss

    def untraced_backward(self, parameters: Any, others: Any, *batch: Any) -> Any:
        (loss, (others, outputs)), gradients = self.differentiated(parameters, others, *batch)
        return gradients, others, (loss, outputs)

    def untraced_step(self, parameters: Any, state: Any, others: Any, *batch: Any) -> Any:
        import optax

        (loss, (others, _)), gradients = self.differentiated(parameters, others, *batch)
        updates, state = self.optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, others, loss

    def build_layer(self, named: NamedLayer, options: dict[str, Any], build: Any) -> Any:
        """Build a layer; a variant may build it otherwise."""
        return module(named, options, build)

    def load_weights(self, weights: Weights) -> None:
        for path, variable in self._variables(self.module):
            if name := self.names.get(path):
                array = self._transposed(weights[name], path, TO_FLAX)
                array = array.astype(self.dtype, order="C").reshape(variable.shape)
                variable.set_value(self.jax.device_put(array, self.device))
        _, self.parameters, others = self.nnx.split(self.module, self.nnx.Param, ...)
        # committed to the device, as the step's results are: otherwise the step compiles twice
        state = self.jax.jit(self.optimizer.init)(self.parameters)
        self.state, self.others = self.jax.device_put((state, others), self.device)
        self.jax.block_until_ready((self.parameters, self.state, self.others))

    def place(self, batches: Batches) -> None:
        self.steps = len(batches)
        self.batches = batches_on_device(batches, self._to_device)
        if not batches.streamed:
            self.jax.block_until_ready(self.batches)

    def train_epoch(self) -> np.ndarray:
        losses = []
        parameters, state, others = self.parameters, self.state, self.others
        for batch in self.batches:
            parameters, state, others, loss = self.step(parameters, state, others, *batch)
            losses.append(loss)
        self.parameters, self.state, self.others = parameters, state, others
        epoch = self.jax.device_get(losses)
        self.jax.block_until_ready((parameters, state, others))
        return np.array(epoch, np.float64)

    def backward_epoch(self) -> Callable[[], Weights]:
        for batch in self.batches:
            gradients, self.others, kept = self.backward(self.parameters, self.others, *batch)
        self.jax.block_until_ready((gradients, self.others, kept))
        return lambda: self._canonical(gradients)

    def predict_epoch(self) -> np.ndarray:
        logits = [self.infer(inputs) for inputs, *_ in self.batches]
        return np.stack(self.jax.device_get(logits))

    def predict_batches(self) -> Iterator[np.ndarray]:
        for inputs, *_ in self.batches:
            yield np.asarray(self.infer(inputs))

    def infer(self, inputs: Any) -> Any:
        """Return the logits of inputs on the device."""
        return self.logits(self.parameters, self.others, inputs)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        arrays = self._to_device(batch)
        (loss, _), gradients = self.value_and_grad(self.parameters, self.others, *arrays)
        return float(loss), self._canonical(gradients)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(self.infer(self._put(inputs)))

    def weights(self) -> Weights:
        found = self._canonical(self.parameters) | self._canonical(self.others)
        return {name: found[name] for name in self.model.parameters}

    def allocated(self) -> int | None:
        """Return the bytes in XLA's own plan of the step's buffers, which it follows exactly."""
        state = (self.parameters, self.state, self.others)
        step = self.step.lower(*state, *next(iter(self.batches))).compile()
        plan = step.memory_analysis()
        if plan is None:
            return None
        new = plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
        return new * self.steps

    def details(self) -> dict[str, str]:
        return versions(*PACKAGES) | (self.gpu_details() or {"BLAS": "XLA's own"})

    def _to_device(self, batch: Batch) -> tuple[Any, Any, dict[str, Any]]:
        """Return the inputs, labels and dropout masks of a batch on the device."""
        masks = {name: self._put(mask) for name, mask in (batch.masks or {}).items()}
        return self._put(batch.inputs), self._put(batch.labels), masks

    def _put(self, array: np.ndarray) -> Any:
        """Move examples to the device, images with their channels last."""
        if array.ndim == 4:  # N, C, H, W
            array = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
        return self.jax.device_put(array, self.device)

    def _canonical(self, tree: Any) -> Weights:
        """Return parameters, or their gradients, with canonical names and axes."""
        return {
            self.names[path]: self._from_flax(np.asarray(variable[...]), path)
            for path, variable in self._variables(tree)
            if path in self.names
        }

    def _from_flax(self, array: np.ndarray, path: ParameterPath) -> np.ndarray:
        """Return the canonical form of a variable: a MultiHeadAttention's have one axis more."""
        shape = self.described[self.names[path]].shape
        if path[-1] == "kernel":
            shape = tuple(shape[axis] for axis in TO_FLAX[len(shape)])
        return self._transposed(array.reshape(shape), path, FROM_FLAX)

    def _decays(self, tree: Any) -> Any:
        """Return a tree like that of the parameters that says which of them decay."""
        decay_of, described = self.model.optimizer.weight_decay_of, self.described
        flat = [
            (path, variable.replace(decay_of(described[self.names[tuple(map(str, path))]]) > 0))
            for path, variable in self.nnx.to_flat_state(tree)
        ]
        return self.nnx.from_flat_state(flat)

    def _variables(self, tree: Any) -> Iterator[tuple[ParameterPath, Any]]:
        """Yield the path and the variable of each leaf of a module or of its state."""
        for path, variable in self.nnx.to_flat_state(self.nnx.state(tree)):
            yield tuple(map(str, path)), variable

    def _transposed(
        self, array: np.ndarray, path: ParameterPath, axes: dict[int, Any]
    ) -> np.ndarray:
        return array.transpose(axes[array.ndim]) if path[-1] == "kernel" else array
