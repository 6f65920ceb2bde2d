"""Translate a model's description into Flax NNX and optax."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ... import models
from ...models.model import NamedLayer


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
            directions = 2 if bidirectional else 1
            cells = (cell(named.input_shape[-1], features, **options) for _ in range(directions))
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
        case models.GivenGradient():
            return given_gradient()
    raise NotImplementedError(f"the JAX adapter does not support the loss {loss}")


def given_gradient() -> Any:
    """Return a function of (outputs, labels) that is 0, and whose gradient is the labels."""
    import jax

    def zero(outputs: Any, labels: Any) -> Any:
        return outputs.dtype.type(0)

    function: Any = jax.custom_vjp(zero)
    function.defvjp(
        lambda outputs, labels: (zero(outputs, labels), labels),
        lambda labels, _: (labels, None),
    )
    return function


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
