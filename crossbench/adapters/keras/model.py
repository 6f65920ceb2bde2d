"""Translate a model's description into Keras: its layers, loss, optimizer and variables.

The model is built by the functional API from keras.layers, images with their channels last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ... import models
from ...models.model import Model, NamedLayer
from ..torch.channels_last import is_unsafe_for_onednn


def network(model: Model) -> tuple[Any, dict[str, Any]]:
    """Build the model, and return it with its Keras layers by their canonical name."""
    import keras

    from .layers import Dropout, Network

    layers: dict[str, Any] = {}
    shape = model.input_shape
    if len(shape) == 3:
        shape = (*shape[1:], shape[0])
    tokens = model.vocabulary is not None
    inputs = keras.Input(shape, dtype="int32" if tokens else keras.config.floatx())
    outputs = chain(model.named_layers(), inputs, layers)
    dropouts = {name: layer for name, layer in layers.items() if isinstance(layer, Dropout)}
    return Network(inputs, outputs, dropouts), layers


def chain(named_layers: Iterable[NamedLayer], x: Any, layers: dict[str, Any]) -> Any:
    """Apply the layers, in order, to a symbolic tensor, and add them to `layers` by name."""
    import keras

    for named in named_layers:
        if isinstance(named.layer, models.Residual):
            branches = (named.body, named.shortcut)
            x = keras.layers.Add()([chain(branch, x, layers) for branch in branches])
            continue
        if isinstance(named.layer, models.Unembedding):
            x = layers["embedding1"](x, reverse=True)
            continue
        *before, layer = keras_layers(named)
        for helper in before:
            x = helper(x)
        x, layers[named.name] = layer(x), layer
    return x


def keras_layers(named: NamedLayer) -> list[Any]:
    """Return the Keras layers that do what a layer describes; the last one has its parameters."""
    import keras
    from keras import layers as keras_own

    from . import layers

    # load_weights sets every parameter: random initial values would cost seconds of compilation
    zeros = {"kernel_initializer": "zeros"}
    match named.layer:
        case models.Conv() as layer:
            return convolution(layer, named)
        case models.MaxPool(window, stride):
            return [keras_own.MaxPooling2D(window, stride)]
        case models.ReLU():
            return [keras_own.ReLU()]
        case models.GELU(tanh):
            return [keras_own.Activation(partial(layers.gelu, tanh=tanh))]
        case models.Flatten() if len(named.input_shape) == 3:
            # the canonical order is C, H, W
            return [keras_own.Permute((3, 1, 2)), keras_own.Flatten()]
        case models.Flatten():
            return [keras_own.Flatten()]
        case models.ToSequence():
            return [keras_own.Reshape(named.output_shape)]
        case models.Dense(features, bias):
            return [keras_own.Dense(features, use_bias=bias, name=named.name, **zeros)]
        case models.BatchNorm(epsilon, momentum):
            return [layers.BatchNorm(epsilon=epsilon, momentum=momentum, name=named.name)]
        case models.LayerNorm(epsilon, bias):
            return [keras_own.LayerNormalization(epsilon=epsilon, center=bias, name=named.name)]
        case models.RMSNorm(epsilon):
            return [keras_own.RMSNormalization(epsilon=epsilon, name=named.name)]
        case models.Dropout(rate):
            return [layers.Dropout(rate, name=named.name)]
        case models.GlobalAveragePool() if len(named.input_shape) == 3:
            return [keras_own.GlobalAveragePooling2D()]
        case models.GlobalAveragePool():
            return [keras_own.GlobalAveragePooling1D()]
        case models.Embedding(vocabulary, features):
            options: dict[str, Any] = {"embeddings_initializer": "zeros", "name": named.name}
            return [keras_own.ReversibleEmbedding(vocabulary, features, **options)]
        case models.PositionEmbedding():
            return [layers.PositionEmbedding(name=named.name)]
        case models.ClassToken():
            return [layers.ClassToken(name=named.name)]
        case models.FirstOfSequence():
            return [lambda sequences: sequences[:, 0]]
        case models.MultiHeadAttention(heads, causal, bias):
            options = {"use_bias": bias, "name": named.name, **zeros}
            width = named.input_shape[-1] // heads
            return [layers.SelfAttention(causal, heads, width, **options)]
        case models.OneHot(vocabulary):
            dtype = keras.config.floatx()
            return [partial(keras.ops.one_hot, num_classes=vocabulary, dtype=dtype)]
        case models.LSTM(features, bidirectional):
            layer = keras_own.LSTM(features, recurrent_initializer="zeros", **zeros)
            return [keras_own.Bidirectional(layer) if bidirectional else layer]
        case models.GRU(features, bidirectional):
            one_bias = {"bias_constraint": layers.OneBias()}
            layer = keras_own.GRU(features, recurrent_initializer="zeros", **zeros, **one_bias)
            return [keras_own.Bidirectional(layer) if bidirectional else layer]
    raise NotImplementedError(f"the Keras adapter does not support the layer {named.layer}")


def convolution(layer: models.Conv, named: NamedLayer) -> list[Any]:
    """Return the Keras layers of a convolution.

    Before it are those of a padding that Keras cannot do itself, and of a stride that is unsafe.
    """
    import keras

    build = partial(
        keras.layers.Conv2D,
        layer.features,
        layer.kernel,
        name=named.name,
        use_bias=layer.bias,
        kernel_initializer="zeros",
    )
    pads = [] if layer.padding == (0, 0) else [keras.layers.ZeroPadding2D(layer.padding)]
    unsafe = is_unsafe_for_onednn(layer.kernel, layer.stride, named.input_shape[0])
    if unsafe and keras.config.backend() == "torch":  # Keras gives it the channels last
        down, right = layer.stride
        return [*pads, lambda pictures: pictures[:, ::down, ::right], build()]
    halves = [(size - 1) / 2 for size in layer.kernel]
    if pads and layer.stride == (1, 1) and halves == list(layer.padding):
        return [build(padding="same")]
    return [*pads, build(strides=layer.stride)]


def loss_function(loss: models.Loss) -> Any:
    """Return the loss, a keras.losses.Loss of labels and logits."""
    from keras import losses

    from .layers import GivenGradient, SmoothedCrossEntropy

    match loss:
        case models.SoftmaxCrossEntropy(label_smoothing) if label_smoothing:
            return SmoothedCrossEntropy(from_logits=True, label_smoothing=label_smoothing)
        case models.SoftmaxCrossEntropy():
            return losses.SparseCategoricalCrossentropy(from_logits=True)
        case models.BinaryCrossEntropy():
            return losses.BinaryCrossentropy(from_logits=True)
        case models.MeanSquaredError():
            return losses.MeanSquaredError()
        case models.GivenGradient():
            return GivenGradient()
    raise NotImplementedError(f"the Keras adapter does not support the loss {loss}")


def optimizer(description: models.Optimizer, has_sparse: bool) -> Any:
    """Return the optimizer, a keras.optimizers.Optimizer.

    has_sparse: whether gradients are sparse, see source.has_sparse_gradients.
    """
    import keras

    from .optimizers import optimizer_class

    kind = optimizer_class(type(description).__name__, has_sparse)
    # TensorFlow makes float32 of a Python float, in a float64 job too
    exact = np.float64 if keras.config.floatx() == "float64" else float
    rate = learning_rate(description, exact)
    clip = None if description.clip_norm is None else exact(description.clip_norm)
    match description:
        case models.SGD(_, momentum):
            return kind(rate, exact(momentum), global_clipnorm=clip)
        case models.Adam(_, beta1, beta2, epsilon):
            betas = exact(beta1), exact(beta2)
            return kind(rate, *betas, epsilon, global_clipnorm=clip)
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            betas = exact(beta1), exact(beta2)
            return kind(rate, exact(decay), *betas, epsilon, global_clipnorm=clip)
        case models.RMSprop(_, rho, epsilon):
            return kind(rate, rho, epsilon=epsilon, global_clipnorm=clip)
        case models.Adadelta(_, rho, epsilon):
            return kind(rate, rho, epsilon, global_clipnorm=clip)
    raise NotImplementedError(f"the Keras adapter does not support the optimizer {description}")


def learning_rate(description: models.Optimizer, exact: Any) -> Any:
    """Return the learning rate, or Keras' schedule of it. exact: the type of its numbers."""
    from keras.optimizers import schedules

    rate = description.learning_rate
    match description.schedule:
        case None:
            return rate
        case models.InverseTimeDecay(decay):
            return schedules.InverseTimeDecay(exact(rate), 1, exact(decay))
        case models.WarmupCosine(warmup, steps, minimum):
            return schedules.CosineDecay(
                exact(rate / (warmup + 1)),
                steps - warmup,
                exact(minimum),
                warmup_target=exact(rate),
                warmup_steps=warmup,
            )
    schedule = description.schedule
    raise NotImplementedError(f"the Keras adapter does not support the schedule {schedule}")


Mapped = tuple[Any, Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]
"""A Keras variable, with the functions from a canonical array to its value and back."""


def same(array: np.ndarray) -> np.ndarray:
    return array


def swapped_gates(array: np.ndarray) -> np.ndarray:
    """Exchange the first two of a GRU's three gates, the columns: Keras' order is z, r, n."""
    reset, update, new = np.split(array, 3, -1)
    return np.concatenate([update, reset, new], -1)


def variables(named: NamedLayer, layer: Any) -> dict[str, Mapped]:
    """Return the variables of a Keras layer by the canonical name of the parameter."""
    found: dict[str, Mapped] = {}
    match named.layer:
        case models.Conv():
            to_keras, back = (partial(np.transpose, axes=a) for a in ((2, 3, 1, 0), (3, 2, 0, 1)))
            found = {"weight": (layer.kernel, to_keras, back), "bias": (layer.bias, same, same)}
        case models.Dense():
            weight = (layer.kernel, np.transpose, np.transpose)
            found = {"weight": weight, "bias": (layer.bias, same, same)}
        case models.Embedding():
            found = {"weight": (layer.embeddings, same, same)}
        case models.PositionEmbedding() | models.ClassToken():
            found = {"weight": (layer.weight, same, same)}
        case models.LayerNorm():
            found = {"weight": (layer.gamma, same, same), "bias": (layer.beta, same, same)}
        case models.RMSNorm():
            found = {"weight": (layer.scale, same, same)}
        case models.MultiHeadAttention():
            found = attention_variables(named, layer)
        case models.BatchNorm():
            found = {
                "weight": (layer.gamma, same, same),
                "bias": (layer.beta, same, same),
                "running_mean": (layer.moving_mean, same, same),
                "running_var": (layer.moving_variance, same, same),
            }
        case models.LSTM(bidirectional=True) | models.GRU(bidirectional=True):
            found = cell_variables(named, layer.forward_layer.cell)
            reverse = cell_variables(named, layer.backward_layer.cell)
            found |= {f"{name}_reverse": mapped for name, mapped in reverse.items()}
        case models.LSTM() | models.GRU():
            found = cell_variables(named, layer.cell)
    by_full_name = {f"{named.name}.{name}": mapped for name, mapped in found.items()}
    return {name: by_full_name[name] for name in named.parameters}  # a bias only if it has one


def attention_variables(named: NamedLayer, layer: Any) -> dict[str, Mapped]:
    """Return the variables of a MultiHeadAttention; its kernels have an axis for the heads."""
    features = named.input_shape[-1]
    found: dict[str, Mapped] = {}
    for name in ("query", "key", "value", "output"):
        dense = getattr(layer, f"{name}_dense")
        shape = dense.kernel.shape
        to_keras = partial(lambda array, shape: array.T.reshape(shape), shape=tuple(shape))
        back = partial(lambda array, size: array.reshape(size, size).T, size=features)
        found[f"{name}_weight"] = (dense.kernel, to_keras, back)
        if dense.bias is not None:
            to_bias = partial(np.reshape, shape=tuple(dense.bias.shape))
            found[f"{name}_bias"] = (dense.bias, to_bias, partial(np.reshape, shape=(features,)))
    return found


def cell_variables(named: NamedLayer, cell: Any) -> dict[str, Mapped]:
    """Return the variables of a recurrent cell by the name of the parameter."""
    if isinstance(named.layer, models.LSTM):
        return {
            "weight_ih": (cell.kernel, np.transpose, np.transpose),
            "weight_hh": (cell.recurrent_kernel, np.transpose, np.transpose),
            "bias": (cell.bias, same, same),
        }

    def to_keras(array: np.ndarray) -> np.ndarray:
        return swapped_gates(array.T)

    def back(array: np.ndarray) -> np.ndarray:
        return swapped_gates(array).T

    def to_two_rows(bias: np.ndarray) -> np.ndarray:
        return np.stack([swapped_gates(bias), np.zeros_like(bias)])

    def first_row(bias: np.ndarray) -> np.ndarray:
        return swapped_gates(bias[0])

    return {
        "weight_ih": (cell.kernel, to_keras, back),
        "weight_hh": (cell.recurrent_kernel, to_keras, back),
        "bias": (cell.bias, to_two_rows, first_row),
    }
