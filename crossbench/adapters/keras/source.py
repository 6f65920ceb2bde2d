"""Write layers, losses and optimizers in Keras, as its users do. Imports no Keras."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ... import models
from ...models.layers.convolutions import Window
from ...models.model import Model, NamedLayer
from ...models.training import Optimizer
from ...source.convolutions import pads_same
from ...source.definitions import definitions_in
from ...source.layers import LayerSource, rescaled
from ...source.statements import Call, bracketed, call, code, one_or_both, unless, unsupported
from ..torch.source import is_unsafe_for_onednn

OWN = tuple(map(Path(__file__).with_name, ("layers.py", "optimizers.py")))
"""Files with the classes and functions that programs may need."""
ACTIVATIONS: Mapping[models.Layer, str] = MappingProxyType(
    {
        models.GELU(): '"gelu"',
        models.HardSwish(): '"hard_swish"',
        models.ReLU(): '"relu"',
        models.ReLU6(): '"relu6"',
        models.Sigmoid(): '"sigmoid"',
        models.SiLU(): '"silu"',
        models.Softplus(): '"softplus"',
        models.Tanh(): '"tanh"',
    }
)
"""Those that a layer can apply itself, by their names."""


def imports(text: str) -> list[str]:
    """Return the statements that import what a module needs."""
    on_tensorflow = ["import tensorflow as tf"] * (re.search(r"^@tf\.", text, re.M) is not None)
    numpy = ["import numpy as np"] * ("np." in text)
    return ["import keras", *numpy, *on_tensorflow, *filter(None, [import_keras(text)])]


def import_keras(text: str) -> str:
    """Return the import of the modules of Keras that a text names, or nothing."""
    names = [name for name in ("layers", "ops") if re.search(rf"(?<![.\w]){name}\.", text)]
    return f"from keras import {', '.join(names)}" if names else ""


def layer_source(
    named: NamedLayer, backend: str = "tensorflow", activation: str | None = None
) -> LayerSource:
    """Return how a layer is written. activation: the one that it applies itself, if any."""
    shape, name = named.input_shape, type(named.layer).__name__
    match named.layer:
        case models.TransposedConv():
            return transposed_convolution(named.layer, activation)
        case models.Convolution():
            return convolution(named, named.layer, backend, activation)
        case models.Pool(is_max=is_max, sizes=sizes, strides=strides, paddings=paddings):
            kind = f"layers.{'Max' if is_max else 'Average'}Pooling{len(sizes)}D"
            pad = f"{'Infinity' if is_max else 'layers.Zero'}Padding{len(sizes)}D"
            before = (call(pad, one_or_both(paddings)),) if any(paddings) else ()
            given = unless(one_or_both(sizes), one_or_both(strides))
            return LayerSource(call(kind, one_or_both(sizes), strides=given), before=before)
        case models.Upsample(factor, mode):
            how = f'"{mode}"' if mode != "nearest" else None
            return LayerSource(call("layers.UpSampling2D", factor, interpolation=how))
        case models.Pad(mode="reflect"):
            pads = ((0, 0), *((w.before, w.after) for w in named.layer.windows), (0, 0))
            return LayerSource(None, f'ops.pad({{x}}, {pads}, mode="reflect")')
        case models.Pad():
            return LayerSource(zero_padding(named.layer.windows))
        case models.ReLU():
            return LayerSource(call("layers.ReLU"))
        case models.LeakyReLU(slope):
            return LayerSource(call("layers.LeakyReLU", slope))
        case models.PReLU(per_channel):
            shared = tuple(range(1, len(shape) + (0 if per_channel else 1)))
            return LayerSource(call("layers.PReLU", shared_axes=shared or None))
        case models.Rescaling(scale, offset):
            return rescaled(scale, offset)  # layers.Rescaling has its numbers in float32
        case models.ELU(alpha):
            return LayerSource(call("layers.ELU", alpha=unless(1, alpha)))
        case models.GELU(tanh=True):
            return LayerSource(None, "keras.activations.gelu({x}, approximate=True)")
        case layer if layer in ACTIVATIONS:
            return LayerSource(call("layers.Activation", ACTIVATIONS[layer]))
        case models.Flatten() | models.Reshape():
            # the canonical order has the channels first
            before = (call("layers.Permute", (3, 1, 2)),) if len(shape) == 3 else ()
            if isinstance(named.layer, models.Flatten):
                return LayerSource(call("layers.Flatten"), before=before)
            to = named.output_shape
            after = (call("layers.Permute", (2, 3, 1)),) if len(to) == 3 else ()
            return LayerSource(call("layers.Reshape", to), before=before, after=after)
        case models.Transpose():
            return LayerSource(call("layers.Permute", (2, 1)))
        case models.ToSequence():
            return LayerSource(call("layers.Reshape", named.output_shape))
        case models.Dense(width, bias):
            options = {"activation": activation, "use_bias": unless(True, bias)}
            return LayerSource(call("layers.Dense", width, **options))
        case models.BatchNorm(epsilon, momentum, affine):
            options = {"momentum": momentum, "epsilon": epsilon, **affine_options(affine)}
            return LayerSource(call("BatchNorm", **options))
        case models.GroupNorm(groups, epsilon, affine):
            options = {"epsilon": epsilon, **affine_options(affine)}
            return LayerSource(call("layers.GroupNormalization", groups, **options))
        case models.LayerNorm(epsilon, bias, affine):
            options = {"epsilon": epsilon, **affine_options(affine, bias)}
            return LayerSource(call("layers.LayerNormalization", **options))
        case models.RMSNorm(epsilon, True):
            return LayerSource(call("layers.RMSNormalization", epsilon=epsilon))
        case models.RMSNorm(epsilon):
            return LayerSource(None, str(call("ops.rms_normalization", "{x}", epsilon=epsilon)))
        case models.Scale() | models.ClassToken():
            return LayerSource(call(name))
        case models.Dropout(rate):
            return LayerSource(call("layers.Dropout", rate))
        case models.GlobalAveragePool() | models.GlobalMaxPool():
            kind = "Average" if isinstance(named.layer, models.GlobalAveragePool) else "Max"
            return LayerSource(call(f"layers.Global{kind}Pooling{len(shape) - 1}D"))
        case models.Embedding(vocabulary, width):
            return LayerSource(call("layers.Embedding", vocabulary, width))
        case models.OneHot(vocabulary):
            return LayerSource(None, f"ops.one_hot({{x}}, {vocabulary})")
        case models.Unembedding():
            return LayerSource(None, "embedding({x}, reverse=True)")
        case models.PositionEmbedding() | models.SinusoidalPositions():
            return LayerSource(call(name))
        case models.FirstOfSequence():
            return LayerSource(None, "{x}[:, 0]")
        case models.MultiHeadAttention(is_plain=False):
            return LayerSource(grouped_attention(named, named.layer))
        case models.MultiHeadAttention(heads, causal, bias):
            given = (heads, shape[-1] // heads)
            build = call("layers.MultiHeadAttention", *given, use_bias=unless(True, bias))
            mask = ", use_causal_mask=True" if causal else ""
            return LayerSource(build, f"{{layer}}({{x}}, {{x}}{mask})")
        case models.LSTM(both_biases=False) | models.GRU():  # Keras' LSTM has one bias
            return recurrent(named.layer)
    raise unsupported("layer", named.layer, "Keras")


def affine_options(affine: bool, bias: bool = True) -> dict[str, Any]:
    """Return the options of a norm by which it has a weight and a bias, or not."""
    return {"center": unless(True, affine and bias), "scale": unless(True, affine)}


def recurrent(layer: models.Recurrent) -> LayerSource:
    """Return how an LSTM or a GRU is written."""
    has_unused_bias = isinstance(layer, models.GRU) and not layer.both_biases
    build = call(
        f"layers.{type(layer).__name__}",
        layer.features,
        return_sequences=unless(False, layer.sequences),
        bias_constraint="OneBias()" if has_unused_bias else None,
    )
    return LayerSource(call("layers.Bidirectional", build) if layer.bidirectional else build)


def grouped_attention(named: NamedLayer, layer: models.MultiHeadAttention) -> Call:
    """Return how an attention with later options is made."""
    rotary = None
    if own := layer.rotary:
        rotary = str(call("Rotary", own.base, interleaved=own.interleaved or None))
    return call(
        "GroupedQueryAttention",
        *(layer.heads, layer.key_heads, layer.width(named.input_shape)),
        causal=layer.causal or None,
        window=layer.window,
        use_bias=unless(True, layer.bias),
        output_bias=unless(True, layer.has_output_bias),
        norm=layer.norm and layer.norm.epsilon,
        rotary=rotary,
    )


def definitions(line: str) -> tuple[str, ...]:
    """Return the classes and functions of layers.py and optimizers.py that a line of source code
    names, without annotations.
    """
    return tuple(
        ANNOTATION.sub("", ANNOTATED_DEFAULT.sub("=", text)) for text in definitions_in(line, *OWN)
    )


ANNOTATION = re.compile(r"\n\n    \w+: Any(?=\n)|: (Any|bool|int)\b| -> (Any|None)\b")
ANNOTATED_DEFAULT = re.compile(r": (Any|bool|int) = ")


def convolution(
    named: NamedLayer, layer: models.Convolution, backend: str, activation: str | None
) -> LayerSource:
    """Return how a convolution is written.

    Before it is a padding that Keras cannot do itself, and a stride that is unsafe. A depthwise one
    has a class of its own, since TensorFlow compiles others with groups by XLA.
    """
    if max(layer.strides) > 1 and max(layer.dilations) > 1:
        raise unsupported("stride beside a dilation", layer, "Keras")
    channels, kernel = layer.channels(named.input_shape), one_or_both(layer.kernel_size)
    unsafe = is_unsafe_for_onednn(layer.kernel_size, layer.strides, channels)
    is_sliced = unsafe and backend == "torch"  # Keras gives it the channels last
    is_padded = any(w.before or w.after for w in layer.windows)
    is_same = is_padded and pads_same(layer)
    options = {
        "strides": None if is_sliced else unless(1, one_or_both(layer.strides)),
        "padding": '"same"' if is_same else None,
        "dilation_rate": unless(1, one_or_both(layer.dilations)),
        "activation": activation,
        "use_bias": unless(True, layer.bias),
    }
    kind, given = f"Conv{len(layer.kernel_size)}D", [layer.features, kernel]
    own = {"groups": unless(1, layer.groups)}
    if is_depthwise(layer, channels):
        kind, given = f"Depthwise{kind}", [kernel]
        own = {"depth_multiplier": unless(1, layer.features // channels)}
    build = call(f"layers.{kind}", *given, **own, **options)
    strides = ", ".join(f"::{step}" for step in layer.strides)
    output = f"{{layer}}({{x}}[:, {strides}])" if is_sliced else "{layer}({x})"
    before = (zero_padding(layer.windows),) if is_padded and not is_same else ()
    return LayerSource(build, output, before=before)


def is_depthwise(layer: models.Layer, channels: int) -> bool:
    """Return whether a convolution is written as a depthwise one, which TensorFlow has for equal
    strides alone.
    """
    return (
        isinstance(layer, models.Convolution)
        and layer.groups == channels > 1
        and len(set(layer.strides)) == 1
    )


def zero_padding(windows: tuple[Window, ...]) -> Call:
    """Return the layer that pads with zeros, (vertical, horizontal)."""
    sides: tuple[Any, ...] = tuple((w.before, w.after) for w in windows)
    if all(before == after for before, after in sides):
        sides = tuple(before for before, _ in sides)
        return call(f"layers.ZeroPadding{len(windows)}D", one_or_both(sides))
    return call(f"layers.ZeroPadding{len(windows)}D", sides if len(sides) > 1 else sides[0])


def transposed_convolution(layer: models.TransposedConv, activation: str | None) -> LayerSource:
    """Return how a transposed convolution is written, with a cropping that Keras cannot do itself
    behind it.
    """
    axes = list(zip(layer.windows, layer.output_padding, strict=True))
    crops = tuple((w.before, max(w.before - more, 0)) for w, more in axes)
    added = tuple(max(more - w.before, 0) for w, more in axes)
    options: dict[str, Any] = {"strides": unless(1, one_or_both(layer.stride))}
    if pads_same(layer):
        options["padding"], crops = '"same"', ()
    elif any(added) or any(w.size < w.stride for w in layer.windows):
        options["output_padding"] = one_or_both(added)
    options |= {"activation": activation, "use_bias": unless(True, layer.bias)}
    build = call("layers.Conv2DTranspose", layer.features, one_or_both(layer.kernel), **options)
    after = (call("layers.Cropping2D", crops),) if any(map(any, crops)) else ()
    return LayerSource(build, after=after)


def loss_source(loss: models.Loss) -> Call:
    """Return how a loss is made, a function of labels and outputs."""
    match loss:
        case models.SoftmaxCrossEntropy(smoothing) if smoothing:
            return call("SmoothedCrossEntropy", from_logits=True, label_smoothing=smoothing)
        case models.SoftmaxCrossEntropy():
            return call("keras.losses.SparseCategoricalCrossentropy", from_logits=True)
        case models.BinaryCrossEntropy():
            return call("keras.losses.BinaryCrossentropy", from_logits=True)
        case models.MeanSquaredError():
            return call("keras.losses.MeanSquaredError")
        case models.AbsoluteError():
            return call("keras.losses.MeanAbsoluteError")
        case models.Huber(delta):
            return call("keras.losses.Huber", delta=unless(1, delta))
    raise unsupported("loss", loss, "Keras")


def has_sparse_gradients(model: Model, backend: str) -> bool:
    """Return whether the gradient of an embedding has the rows of the batch's tokens alone."""
    kinds = {type(named.layer) for named in model.all_layers()}
    return backend == "tensorflow" and models.Embedding in kinds


def optimizer_source(
    optimizer: Optimizer, not_decaying: str, has_sparse: bool = False, backend: str = "tensorflow"
) -> list[str]:
    """Return the statements that make the `optimizer`, with the schedule `rate` if it has one.

    not_decaying: the expression of the variables without weight decay, where it is for matrices
    only. has_sparse: see has_sparse_gradients.
    """
    rate: Any = "rate" if optimizer.schedule else optimizer.learning_rate
    match optimizer:
        case models.SGD(_, momentum, nesterov, decay):
            name = "keras.optimizers.SGD"
            if momentum and (decay or optimizer.schedule):
                name = "ParallelCoupledSGD" if backend == "torch" else "CoupledSGD"
            given = {"momentum": unless(0, momentum), "nesterov": unless(False, nesterov)}
            given |= {"weight_decay": unless(0, decay)}
        case models.Adam(_, beta1, beta2, epsilon):
            name, given = "Adam", {"beta_1": beta1, "beta_2": beta2, "epsilon": epsilon}
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            name, given = "AdamW", {"beta_1": beta1, "beta_2": beta2}
            given |= {"weight_decay": decay, "epsilon": epsilon}
        case models.Lion(_, beta1, beta2, decay):
            name, given = "keras.optimizers.Lion", {"beta_1": beta1, "beta_2": beta2}
            given |= {"weight_decay": unless(0, decay)}
        case models.RMSprop(_, rho, epsilon):
            name = "ParallelRMSprop" if backend == "torch" else "RMSprop"
            given = {"rho": rho, "epsilon": epsilon}
        case models.Adadelta(_, rho, epsilon):
            name, given = "keras.optimizers.Adadelta", {"rho": rho, "epsilon": epsilon}
        case models.Adagrad(_, initial, epsilon):
            name = "Adagrad"
            given = {"initial_accumulator_value": initial, "epsilon": epsilon}
        case _:
            raise unsupported("optimizer", optimizer, "Keras")
    kind = f"with_dense_gradients({name})" if has_sparse else name
    made = call(kind, rate, **given, global_clipnorm=optimizer.clip_norm)
    lines = [*schedule_source(optimizer), made.assigned_to("optimizer")]
    if isinstance(optimizer, models.Decaying) and optimizer.matrices_only:
        lines.append(bracketed("optimizer.exclude_from_weight_decay(", [not_decaying], ")"))
    return lines


def schedule_source(optimizer: Optimizer) -> list[str]:
    """Return the statement that makes the schedule `rate`, or none for a constant learning rate."""
    peak, schedules = optimizer.learning_rate, "keras.optimizers.schedules"
    match optimizer.schedule:
        case None:
            return []
        case models.InverseTimeDecay(decay):
            schedule = call(f"{schedules}.InverseTimeDecay", peak, 1, decay)
        case models.WarmupCosine(warmup, steps, minimum):
            rest = {"alpha": minimum, "warmup_target": peak, "warmup_steps": warmup}
            schedule = call(f"{schedules}.CosineDecay", peak / (warmup + 1), steps - warmup, **rest)
        case models.Cosine(steps, minimum):
            alpha = unless(0.0, minimum)
            schedule = call(f"{schedules}.CosineDecay", peak, steps, alpha=alpha)
        case models.Steps(milestones, gamma):
            rates = (code(peak * gamma**count) for count in range(len(milestones) + 1))
            last = [step - 1 for step in milestones]  # with each rate
            schedule = call(f"{schedules}.PiecewiseConstantDecay", last, f"[{', '.join(rates)}]")
        case models.OneCycle(warmup, steps, start, end, linear):
            if linear:
                up, down, kind = peak, end * peak, "PolynomialDecay"
            else:
                up, down, kind = 1 / start, end, "CosineDecay"
            rise = call(f"{schedules}.{kind}", start * peak, warmup, up)
            fall = call(f"{schedules}.{kind}", peak, steps - warmup, down)
            schedule = call("Joined", rise, fall, warmup)
        case other:
            raise unsupported("schedule", other, "Keras")
    return [schedule.assigned_to("rate")]
