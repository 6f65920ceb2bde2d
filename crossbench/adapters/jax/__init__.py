"""Train a model in JAX: a Flax NNX model and an optax optimizer in one jitted training step.

Flax keeps images as (N, H, W, C) and dense kernels as (in, out). The step works on the model's
parameters as a pytree (Flax's "functional training loop"). Python calls it once per batch: on the
CPU a convolution inside lax.scan takes a slow path (jax issue 12868).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ... import models
from ...inputs.names import IDIOMATIC, MALLOC
from ...models.model import NamedLayer, Weights
from ...workload import (
    KEEP_FREED_MEMORY,
    MALLOC_VARIANT,
    Adapter,
    Batch,
    Batches,
    Job,
    Variant,
    VariantModules,
    batches_on_device,
    missing,
    versions,
)

PACKAGES = ("jax", "jaxlib", "flax", "optax")
GPU_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
CACHE_BYTES = 2**28
"""Bytes of compiled programs that are kept for later proofs; a LeNet's are 0.2 MB."""
SEED = 0
"""Seed of the dropout masks."""


def sequential(layers: Iterable[NamedLayer], options: dict[str, Any], build: Any) -> Any:
    """Build the layers, in order, as an nnx.Sequential; see `module` for the arguments."""
    from flax import nnx

    return nnx.Sequential(*(build(named, options, build) for named in layers))


def module(named: NamedLayer, options: dict[str, Any], build: Any) -> Any:
    """Build a layer as a Flax module or a function.

    options: dtype, param_dtype and rngs of every module with parameters. build: this function, or
        what a variant has in its place, for the layers inside of this one.
    """
    import jax
    from flax import nnx

    from . import layers

    # load_weights sets every parameter: random initial values would cost seconds of compilation
    zeros = nnx.initializers.zeros
    match named.layer:
        case models.Conv():
            return convolution(nnx.Conv, named, options)
        case models.MaxPool(window, stride):
            return partial(nnx.max_pool, window_shape=window, strides=stride)
        case models.ReLU():
            return nnx.relu
        case models.GELU(tanh):
            return partial(nnx.gelu, approximate=tanh)
        case models.Flatten():
            # the canonical order is C, H, W; XLA fuses the transposition with its neighbours
            return lambda x: (x.transpose(0, 3, 1, 2) if x.ndim == 4 else x).reshape(len(x), -1)
        case models.ToSequence():
            return lambda x: x.reshape(len(x), -1, x.shape[-1])
        case models.Dense(features, bias):
            options = options | {"use_bias": bias, "kernel_init": zeros}
            return nnx.Linear(named.input_shape[-1], features, **options)
        case models.BatchNorm(epsilon, momentum):
            features = named.input_shape[0]
            return layers.BatchNorm(features, epsilon=epsilon, momentum=momentum, **options)
        case models.LayerNorm(epsilon, bias):
            options = options | {"use_bias": bias}
            return nnx.LayerNorm(named.input_shape[-1], epsilon=epsilon, **options)
        case models.RMSNorm(epsilon):
            return nnx.RMSNorm(named.input_shape[-1], epsilon=epsilon, **options)
        case models.Dropout(rate):
            return layers.Dropout(rate, rngs=options["rngs"])
        case models.GlobalAveragePool():
            return lambda x: x.mean(range(1, x.ndim - 1))
        case models.Embedding(vocabulary, features):
            return nnx.Embed(vocabulary, features, embedding_init=zeros, **options)
        case models.OneHot(vocabulary):
            return partial(jax.nn.one_hot, num_classes=vocabulary, dtype=options["dtype"])
        case models.Unembedding(vocabulary):
            features = named.input_shape[-1]
            return layers.Unembedding(vocabulary, features, embedding_init=zeros, **options)
        case models.PositionEmbedding():
            return layers.PositionEmbedding(named.input_shape, options["param_dtype"])
        case models.ClassToken():
            return layers.ClassToken(named.input_shape[-1], options["param_dtype"])
        case models.FirstOfSequence():
            return lambda x: x[:, 0]
        case models.MultiHeadAttention(heads, causal, bias):
            options = options | {"use_bias": bias, "kernel_init": zeros, "keep_rngs": False}
            return layers.SelfAttention(causal, heads, named.input_shape[-1], **options)
        case models.LSTM(features, bidirectional) | models.GRU(features, bidirectional):
            cell = nnx.OptimizedLSTMCell if isinstance(named.layer, models.LSTM) else nnx.GRUCell
            options = options | {"kernel_init": zeros, "recurrent_kernel_init": zeros}
            build = partial(cell, named.input_shape[-1], features, **options)
            cells = [build(), build()] if bidirectional else [build()]
            return layers.Recurrent(*cells)
        case models.Residual():
            branches = (named.body, named.shortcut)
            return layers.Residual(*(sequential(branch, options, build) for branch in branches))
    raise NotImplementedError(f"the JAX adapter does not support the layer {named.layer}")


def convolution(kind: Any, named: NamedLayer, options: dict[str, Any]) -> Any:
    """Build a convolution as a module of this kind, nnx.Conv or one derived from it."""
    from flax import nnx

    layer: Any = named.layer
    return kind(
        in_features=named.input_shape[0],
        out_features=layer.features,
        kernel_size=layer.kernel,
        strides=layer.stride,
        padding=[(p, p) for p in layer.padding],
        use_bias=layer.bias,
        kernel_init=nnx.initializers.zeros,
        **options,
    )


def loss_function(loss: models.Loss) -> Any:
    """Return the loss as a function of (logits, labels): a scalar, the mean over the batch."""
    import jax
    import optax

    match loss:
        case models.SoftmaxCrossEntropy(label_smoothing) if label_smoothing:

            def smoothed(logits: Any, labels: Any) -> Any:
                one_hot = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
                targets = optax.smooth_labels(one_hot, label_smoothing)
                return optax.softmax_cross_entropy(logits, targets).mean()

            return smoothed
        case models.SoftmaxCrossEntropy():
            cross_entropy = optax.softmax_cross_entropy_with_integer_labels
            return lambda logits, labels: cross_entropy(logits, labels).mean()
        case models.BinaryCrossEntropy():
            binary = optax.sigmoid_binary_cross_entropy
            return lambda logits, labels: binary(logits[:, 0], labels).mean()
        case models.MeanSquaredError():
            return lambda outputs, targets: optax.squared_error(outputs, targets).mean()
    raise NotImplementedError(f"the JAX adapter does not support the loss {loss}")


def transformation(optimizer: models.Optimizer, decays: Callable[[Any], Any]) -> Any:
    """Return the optimizer as an optax.GradientTransformation.

    decays: returns whether each parameter of a tree decays, in a tree of the same structure.
    """
    import optax

    updates = rule(optimizer, learning_rate(optimizer), decays)
    if optimizer.clip_norm is None:
        return updates
    return optax.chain(optax.clip_by_global_norm(optimizer.clip_norm), updates)


def rule(optimizer: models.Optimizer, rate: Any, decays: Callable[[Any], Any]) -> Any:
    """Return optax's rule of an optimizer, without its clipping."""
    import optax

    match optimizer:
        case models.SGD(_, momentum):
            return optax.sgd(rate, momentum)
        case models.Adam(_, beta1, beta2, epsilon):
            return optax.adam(rate, beta1, beta2, epsilon)
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            return optax.adamw(rate, beta1, beta2, epsilon, weight_decay=decay, mask=decays)
        case models.RMSprop(_, rho, epsilon):
            return optax.rmsprop(rate, rho, epsilon, eps_in_sqrt=False)
        case models.Adadelta(_, rho, epsilon):
            return optax.adadelta(rate, rho, epsilon)
    raise NotImplementedError(f"the JAX adapter does not support the optimizer {optimizer}")


def learning_rate(optimizer: models.Optimizer) -> Any:
    """Return the learning rate, or optax's schedule of it."""
    import optax

    rate = optimizer.learning_rate
    match optimizer.schedule:
        case None:
            return rate
        case models.InverseTimeDecay(decay):
            return lambda step: rate / (1 + decay * step)
        case models.WarmupCosine(warmup, steps, minimum):
            scheduled = optax.warmup_cosine_decay_schedule(
                init_value=rate / (warmup + 1),
                peak_value=rate,
                warmup_steps=warmup,
                decay_steps=steps,
                end_value=minimum * rate,
            )
            # of an integer optax computes the rate in float32, in a float64 job too
            return lambda step: scheduled(step.astype(float))
    raise NotImplementedError(f"the JAX adapter does not support the schedule {optimizer.schedule}")


ParameterPath = tuple[str, ...]

PARAMETER_NAMES: dict[ParameterPath, str] = {
    ("kernel",): "weight",
    ("embedding",): "weight",
    ("scale",): "weight",
    ("bias",): "bias",
    ("mean",): "running_mean",
    ("var",): "running_var",
    ("dense_i", "kernel"): "weight_ih",
    ("dense_h", "kernel"): "weight_hh",
    ("dense_i", "bias"): "bias",  # a GRU's
    ("dense_h", "bias"): "bias",  # an LSTM's
    ("query", "kernel"): "query_weight",
    ("query", "bias"): "query_bias",
    ("key", "kernel"): "key_weight",
    ("key", "bias"): "key_bias",
    ("value", "kernel"): "value_weight",
    ("value", "bias"): "value_bias",
    ("out", "kernel"): "output_weight",
    ("out", "bias"): "output_bias",
}
"""The canonical name of a parameter, by its path in a Flax layer or recurrent cell."""
SUFFIXES: dict[ParameterPath, str] = {
    (): "",
    ("directions", "0", "cell"): "",
    ("directions", "1", "cell"): "_reverse",
}
"""The suffix of that name, by what holds the parameter: the layer, or the cell of a direction."""
TO_FLAX = {2: (1, 0), 4: (2, 3, 1, 0)}
FROM_FLAX = {2: (1, 0), 4: (3, 2, 0, 1)}
"""Transpositions by the number of axes: dense kernels (out, in) and (in, out), and convolutions'
(O, I, H, W) and (H, W, I, O)."""


def paths(
    layers: Iterable[NamedLayer], start: ParameterPath = ()
) -> Iterator[tuple[str, ParameterPath]]:
    """Yield each layer's name and its path in a module from `sequential`."""
    for index, named in enumerate(layers):
        path = (*start, "layers", str(index))
        yield named.name, path
        yield from paths(named.body, (*path, "body"))
        yield from paths(named.shortcut, (*path, "shortcut"))


def canonical_names(layers: Iterable[NamedLayer]) -> dict[ParameterPath, str]:
    """Return the canonical name of each parameter, by its path in a module from `sequential`."""
    return {
        (*path, *holder, *inner): f"{layer}.{name}{suffix}"
        for layer, path in paths(layers)
        for holder, suffix in SUFFIXES.items()
        for inner, name in PARAMETER_NAMES.items()
    }


def missing_plugin(device: str) -> str | None:
    """Return what JAX needs for a GPU and how to install it; None for nothing."""
    if device == "gpu" and not versions(*GPU_PLUGINS):
        return "jax has no GPU plugin: pip install 'jax[cuda13]'"
    return None


class JaxArrays:
    """Multiply and copy arrays on a device, into memory that an earlier array gives up.

    Without that, each result is in memory that the kernel has to clear first: on a CPU the copy
    reached a quarter of its speed.
    """

    def __init__(self, device: Any) -> None:
        import jax
        import jax.numpy as jnp

        def multiply(a: Any, b: Any, into: Any) -> Any:
            return jnp.matmul(a, b)

        def copy(source: Any, into: Any) -> Any:
            return jnp.copy(source)

        self.jax, self.device = jax, device
        self.compiled_multiply = jax.jit(multiply, donate_argnums=2, keep_unused=True)
        self.compiled_copy = jax.jit(copy, donate_argnums=1, keep_unused=True)

    def put(self, array: np.ndarray) -> Any:
        # a copy of its own: on a CPU the array's own memory would be used
        return self.jax.device_put(array.copy(), self.device).block_until_ready()

    def fetch(self, array: Any, step: int = 1) -> np.ndarray:
        return np.asarray(array[::step])

    def address(self, array: Any) -> int:
        return array.unsafe_buffer_pointer()

    def multiply(self, a: Any, b: Any, into: Any) -> Any:
        return self.compiled_multiply(a, b, into).block_until_ready()

    def copy(self, source: Any, into: Any) -> Any:
        return self.compiled_copy(source, into).block_until_ready()


class JaxWorkload:
    """Train one model in JAX."""

    def __init__(self, job: Job) -> None:
        import jax
        import jax.numpy as jnp
        import optax
        from flax import nnx

        from . import layers

        # this holds for the whole process, which uses one workload at a time
        jax.config.update("jax_enable_x64", job.dtype == "float64")
        # XLA's default on a GPU is TensorFloat-32, which has 10 bits of mantissa
        jax.config.update("jax_default_matmul_precision", "highest")
        self.jax, self.nnx, self.model = jax, nnx, job.model
        self.device = jax.devices(job.device)[0]
        self.dtype = jnp.dtype(job.dtype)

        def create() -> Any:
            options = {"dtype": self.dtype, "param_dtype": self.dtype, "rngs": nnx.Rngs(SEED)}
            return layers.tied(sequential(job.model.named_layers(), options, self.build_layer))

        with jax.default_device(self.device):
            # a single program: each layer by itself compiles several
            self.module = nnx.jit(create)()
        self.names = canonical_names(job.model.named_layers())
        self.module.eval()
        eval_graphdef, *_ = nnx.split(self.module, nnx.Param, ...)
        self.module.train()
        train_graphdef, *_ = nnx.split(self.module, nnx.Param, ...)
        loss = loss_function(job.model.loss)
        self.described = job.model.parameters
        self.optimizer = transformation(job.model.optimizer, self._decays)
        dropouts = dict(paths(job.model.named_layers()))

        def logits(parameters: Any, others: Any, inputs: Any) -> Any:
            return nnx.merge(eval_graphdef, parameters, others)(inputs)

        def objective(graphdef: Any) -> Any:
            """Return the function of the loss of a batch in training mode."""

            def batch_loss(
                parameters: Any, others: Any, inputs: Any, labels: Any, masks: Any
            ) -> Any:
                """Return the loss, and the running statistics and dropouts' counters after it."""
                # copied, since the pass changes `others` in place
                module = nnx.merge(graphdef, parameters, others, copy=True)
                layers.set_masks(module, {dropouts[name]: mask for name, mask in masks.items()})
                value = loss(module(inputs), labels)
                _, _, _, others = nnx.split(module, nnx.Param, layers.Mask, ...)
                return value, others

            return batch_loss

        differentiated = jax.value_and_grad(objective(train_graphdef), has_aux=True)

        def step(parameters: Any, state: Any, others: Any, *batch: Any) -> Any:
            (value, others), gradients = differentiated(parameters, others, *batch)
            updates, state = self.optimizer.update(gradients, state, parameters)
            return optax.apply_updates(parameters, updates), state, others, value

        self.logits = jax.jit(logits)
        self.objective, self.differentiated = objective, differentiated
        self.value_and_grad = jax.jit(differentiated)
        self.untraced_step = step
        self.step = jax.jit(step, donate_argnums=(0, 1))

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

    def peak_memory(self) -> int | None:
        if self.device.platform == "cpu":
            return None
        return (self.device.memory_stats() or {}).get("peak_bytes_in_use")

    def free_memory(self) -> None:
        """Do nothing: XLA's allocator keeps its memory."""

    def threads(self) -> int | None:
        return None  # XLA uses as many as the process may, and does not report them

    def epoch_figures(self) -> dict[str, float]:
        return {}

    def allocated(self) -> int | None:
        """Return the bytes in XLA's own plan of the step's buffers, which it follows exactly."""
        state = (self.parameters, self.state, self.others)
        step = self.step.lower(*state, *next(iter(self.batches))).compile()
        plan = step.memory_analysis()
        if plan is None:
            return None
        new = plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
        return new * self.steps

    def arrays(self) -> JaxArrays:
        return JaxArrays(self.device)

    def details(self) -> dict[str, str]:
        details = versions(*PACKAGES)
        if self.device.platform == "cpu":
            return details | {"BLAS": "XLA's own"}
        return details | {
            "GPU": self.device.device_kind,
            "CUDA": " ".join(self.device.client.platform_version.split()),
        }

    def _to_device(self, batch: Batch) -> tuple[Any, Any, dict[str, Any]]:
        """Return the inputs, labels and dropout masks of a batch on the device."""
        masks = {name: self._put(mask) for name, mask in (batch.masks or {}).items()}
        labels = self.jax.device_put(batch.labels, self.device)
        return self._put(batch.inputs), labels, masks

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


class JaxAdapter(Adapter):
    """Build models in JAX as its tutorials do; a base for adapters of a loop of one's own."""

    title = "JAX/Flax"

    def available(self, device: str) -> str | None:
        return missing("jax", "jax", "flax", "optax") or missing_plugin(device)

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

    def proof_environment(self, device: str, cache: Path) -> dict[str, str]:
        if not versions("filelock"):  # JAX needs it to keep its cache small
            return {}
        return {
            "JAX_ENABLE_COMPILATION_CACHE": "true",
            "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
            "JAX_COMPILATION_CACHE_MAX_SIZE": str(CACHE_BYTES),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }

    def build(self, job: Job) -> JaxWorkload:
        return JaxWorkload(job)


VARIANTS = {
    IDIOMATIC: Variant("a Flax NNX model and an optax optimizer in one jitted training step"),
    MALLOC: MALLOC_VARIANT,
    "scan": Variant("the whole epoch in one call: lax.scan over the steps"),
    "tuned": Variant(
        "as fast as JAX can be made; adapters/jax/tuned.py says how",
        environment=KEEP_FREED_MEMORY,
    ),
}


class JaxVariants(VariantModules, JaxAdapter):
    """Build models in JAX in any of its variants."""

    variants = VARIANTS


ADAPTER = JaxVariants()
