"""Train a model in JAX by the module that program.py writes.

It has a Flax NNX model and an optax optimizer in one jitted training step. Flax keeps images as (N,
H, W, C). The step takes and returns the state of the model and of the optimizer (Flax's "functional
training loop"). Python calls it once per batch: on the CPU a convolution inside lax.scan takes a
slow path (jax issue 12868).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ... import models
from ...inputs.names import TF32
from ...models.model import NamedLayer, Weights
from ...source.layers import LayerSource
from ...source.module import imported
from ...source.places import channels_first
from ...workload import Batch, Batches, DeviceArrays, Job, Workload, batches_on_device, versions
from .program import SEED, training_source
from .source import Dtypes, layer_source

PACKAGES = ("jax", "jaxlib", "flax", "optax")


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
    """Drive the module of a model's training.

    state: of the model and the optimizer. In the proof a batch has dropout masks too.
    """

    one_call = False
    """Whether an epoch is one call of the module's `train_epoch`."""

    def __init__(self, job: Job) -> None:
        self.prepare(job)
        from flax import nnx

        self.nnx, self.model, self.dtype = nnx, job.model, np.dtype(job.dtype)
        written = training_source(job.model, job.is_mixed, self.one_call, self.layer_source)
        self.source_code, self.paths = written.module, written.network.paths
        self.places = {
            place.path: (name, place) for name, place in written.network.places().items()
        }
        self.module = self.imported()
        model = nnx.eval_shape(self._create)  # draws no weight
        if job.dtype == "float64":
            from .float64 import set_dtype

            set_dtype(model)
        model.eval()
        self.module.eval_graphdef = nnx.graphdef(model)
        model.train()
        self.module.model_graphdef, self.shapes = nnx.split(model)
        optimizer = nnx.eval_shape(self.module.make_optimizer, model)
        self.module.graphdef = nnx.graphdef((model, optimizer))
        self.step = self.module.train_step
        self.backward = self.module.compute_gradients
        self.seeds = self.jax.jit(lambda: nnx.state(self._create(), nnx.RngState))
        self.start = self.jax.jit(self._start)

    def imported(self) -> Any:
        """Return a new module of the training, whose loss takes a batch with dropout masks too."""
        module = imported(self.source_code)
        module.loss_fn = self._with_masks(module.loss_fn)
        return module

    def layer_source(self, named: NamedLayer, dtypes: Dtypes) -> LayerSource:
        """Return how a layer is written; a variant may write it otherwise."""
        return layer_source(named, dtypes)

    def _create(self) -> Any:
        return self.module.Model(self.nnx.Rngs(SEED))

    def _start(self, weights: Any) -> Any:
        """Return the state of the model with these weights, and of a new optimizer."""
        model = self.nnx.merge(self.module.model_graphdef, weights)
        optimizer = self.module.make_optimizer(model)
        if self.dtype == np.float64:
            from .float64 import count_in_int64

            count_in_int64(optimizer)
        return self.nnx.state((model, optimizer))

    def _with_masks(self, loss_fn: Any) -> Any:
        """Return the function of the loss that also takes a batch with dropout masks."""
        dropouts = {
            path: named.name
            for path, named in self.paths
            if isinstance(named.layer, models.Dropout)
        }

        def masked(model: Any, batch: Any) -> Any:
            inputs, labels, *masks = batch
            if not masks:
                return loss_fn(model, batch)
            given = {
                id(layer): masks[0][dropouts[dotted(path)]]
                for path, layer in self.nnx.iter_modules(model)
                if dotted(path) in dropouts
            }

            def apply(layer: Any, x: Any) -> Any:
                return x * given[id(layer)] / (1 - layer.rate)

            kind, draw = self.nnx.Dropout, self.nnx.Dropout.__call__
            kind.__call__ = apply
            try:
                return loss_fn(model, (inputs, labels))
            finally:
                kind.__call__ = draw

        return masked if dropouts else loss_fn

    def load_weights(self, weights: Weights) -> None:
        given, seeds = self.nnx.to_flat_state(self.shapes), {}
        if any(dotted(path) not in self.places for path, _ in given):
            seeds = dict(self._variables(self.seeds()))

        def loaded(path: str, variable: Any) -> Any:
            if path not in self.places:
                return seeds[path]
            name, place = self.places[path]
            return variable.replace(place.to_framework(weights[name]).astype(self.dtype, order="C"))

        state = self.nnx.from_flat_state([(p, loaded(dotted(p), v)) for p, v in given])
        # committed to the device, as the step's results are: otherwise the step compiles twice
        self.state = self.start(self.jax.device_put(state, self.device))
        self.jax.block_until_ready(self.state)

    def place(self, batches: Batches) -> None:
        self.steps = len(batches)
        self.batches = batches_on_device(batches, self._to_device)
        if not batches.streamed:
            self.jax.block_until_ready(self.batches)

    def train_epoch(self) -> np.ndarray:
        losses = []
        state, step = self.state, self.step
        for batch in self.batches:
            state, loss = step(state, batch)
            losses.append(loss)
        self.state = state
        epoch = self.jax.device_get(losses)
        self.jax.block_until_ready(state)
        return np.array(epoch, np.float64)

    def backward_epoch(self) -> Callable[[], Weights]:
        parameters, others = self.split()
        for batch in self.batches:
            gradients, others, kept = self.backward(parameters, others, batch)
        self.jax.block_until_ready((gradients, others, kept))
        return lambda: self._canonical(gradients)

    def split(self) -> Any:
        """Return the parameters, and the model's other variables."""
        return self.nnx.split_state(self.state[0], self.nnx.Param, ...)

    def predict_epoch(self) -> np.ndarray:
        weights = self.state[0]
        logits = [self.module.predict(weights, inputs) for inputs, *_ in self.batches]
        return channels_first(np.stack(self.jax.device_get(logits)), self.model.output_shape)

    def predict_batches(self) -> Iterator[np.ndarray]:
        return (self._outputs(inputs) for inputs, *_ in self.batches)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        gradients, _, loss = self.module.compute_gradients(*self.split(), self._to_device(batch))
        return float(loss), self._canonical(gradients)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self._outputs(self._put(inputs))

    def _outputs(self, inputs: Any) -> np.ndarray:
        """Return the model's outputs for inputs on the device."""
        outputs = np.asarray(self.module.predict(self.state[0], inputs))
        return channels_first(outputs, self.model.output_shape)

    def weights(self) -> Weights:
        found = self._canonical(self.state[0])
        return {name: found[name] for name in self.model.parameters}

    def allocated(self) -> int | None:
        """Return the bytes in XLA's own plan of the step's buffers, which it follows exactly."""
        step = self.step.lower(self.state, next(iter(self.batches))).compile()
        plan = step.memory_analysis()
        if plan is None:
            return None
        new = plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
        return new * self.steps

    def details(self) -> dict[str, str]:
        return versions(*PACKAGES) | (self.gpu_details() or {"BLAS": "XLA's own"})

    def _to_device(self, batch: Batch) -> tuple[Any, ...]:
        """Return the inputs, labels and, where there are any, dropout masks on the device."""
        masks = {name: self._put(mask) for name, mask in (batch.masks or {}).items()}
        arrays = (self._put(batch.inputs), self._put(batch.labels))
        return (*arrays, masks) if masks else arrays

    def _put(self, array: np.ndarray) -> Any:
        """Move examples to the device, images with their channels last."""
        if array.ndim == 4:  # N, C, H, W
            array = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
        return self.jax.device_put(array, self.device)

    def _canonical(self, state: Any) -> Weights:
        """Return parameters, or their gradients, with canonical names and axes."""
        found = {}
        for path, variable in self._variables(state):
            if path in self.places:
                name, place = self.places[path]
                found[name] = place.from_framework(np.asarray(variable[...]))
        return found

    def _variables(self, state: Any) -> Iterator[tuple[str, Any]]:
        """Yield the path and the variable of each leaf of a state."""
        for path, variable in self.nnx.to_flat_state(state):
            yield dotted(path), variable


def dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))
