"""Write programs in Keras on TensorFlow, as its users do: the line of each layer, loss and
optimizer, and the program of a part of a training step. Imports none of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import models
from ...models.model import Model, NamedLayer
from ...models.parameters import Shape
from ...models.parts import LOSS, OPTIMIZER, Part
from ...models.training import Optimizer
from ...source.definitions import definitions_in
from ...source.layers import LayerLines, LayerSource, ParameterSource, output_lines
from ...source.part_programs import (
    ARRAY,
    GRADIENT_PHASE,
    SCALE,
    Timed,
    batch_inputs,
    batch_values,
    gradients,
    heading,
    labels,
    outputs,
    python_program,
    shapes_statement,
    values,
)
from ...source.statements import (
    WIDTH,
    Call,
    bracketed,
    call,
    indented,
    one_or_both,
    unless,
    unsupported,
)
from ..torch.source import is_unsafe_for_onednn
from .parameters import places, swapped

OWN = tuple(map(Path(__file__).with_name, ("layers.py", "optimizers.py")))
"""Files with the classes and functions that programs may need."""
IMPORTS = """
import os
import time

os.environ |= {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}
import keras
import numpy as np
import tensorflow as tf
"""
SETUP = (
    "tf.config.threading.set_intra_op_parallelism_threads(THREADS)",
    "tf.config.threading.set_inter_op_parallelism_threads(THREADS)",
    "keras.config.set_floatx(DTYPE)",
)
MAX_RESULT = WIDTH - len("    return output, ")
TOTAL = "np.abs({array}).sum(dtype=float)"


def part_program(part: Part, model: Model, batch_size: int, threads: int) -> str:
    """Return the program of a part of a training step."""
    timed = {LOSS: _loss, OPTIMIZER: _optimizer}.get(part.name, _layers)(part, batch_size)
    return python_program(
        heading(part, model, "Keras on TensorFlow", batch_size),
        f"{IMPORTS.strip()}\n{import_keras([*timed.definitions, *timed.setup])}",
        [f"return {ARRAY}"],
        timed,
        version="keras {keras.__version__}",
        total=TOTAL,
        THREADS=threads,
    )


def import_keras(texts: Sequence[str]) -> str:
    """Return the import of the modules of Keras that texts name, or nothing."""
    text = "\n".join(texts)
    names = [name for name in ("layers", "ops") if re.search(rf"(?<![.\w]){name}\.", text)]
    return f"from keras import {', '.join(names)}" if names else ""


def _layers(part: Part, batch_size: int) -> Timed:
    layers = [LayerLines(named, in_training(named)) for named in part.layers]
    gradient = batch_values(batch_size, *part.layers[-1].output_shape, phase=GRADIENT_PHASE)
    return Timed(
        definitions=[
            *(text for layer in layers for text in layer.source.definitions),
            _step(part, layers),
        ],
        setup=[
            *SETUP,
            *(line for layer in layers for line in built(layer)),
            bracketed("x = tf.constant(", [batch_inputs(part, batch_size)], ")"),
            bracketed("output_grad = tf.constant(", [gradient], ")"),
        ],
        call=["output, gradients = step(x, output_grad)"],
        numbers=outputs(part, TOTAL.format(array="output"), "np.mean(output == 0)"),
        gradients=list(gradients(part, layers, "", of_input="")),
    )


def in_training(named: NamedLayer) -> LayerSource:
    """Return how a layer is written outside of a model, whose training it could tell."""
    source = layer_source(named)
    if isinstance(named.layer, models.GRU):
        source = replace(source, definitions=(*source.definitions, inspect.getsource(swapped)))
    if isinstance(named.layer, models.BatchNorm | models.Dropout):
        return replace(source, output="{layer}({x}, training=True)")
    return source


def _step(part: Part, layers: list[LayerLines]) -> str:
    """Return the compiled function of a forward and backward pass."""
    own = [(layer.name, p) for layer in layers for p in layer.source.parameters.values()]
    sources = [f"{name}.{p.path}" for name, p in own] + ["x"] * bool(part.before)
    body = [
        "with tf.GradientTape() as tape:",
        *["    tape.watch(x)"] * bool(part.before),
        *indented(output_lines(layers, "output = ")),
    ]
    result = f"tape.gradient(output, [{', '.join(sources)}], output_grad)"
    changed = {index: p.index for index, (_, p) in enumerate(own) if p.index}
    if len(result) > MAX_RESULT or changed:
        body.append(bracketed("sources = [", sources, "]", WIDTH - 4))
        result = "tape.gradient(output, sources, output_grad)"
    if changed:
        body.append(f"gradients = {result}")
        for index, expression in changed.items():
            gradient = f"gradients[{index}]"
            body.append(f"{gradient} = {expression.format(gradient=gradient)}")
        result = "gradients"
    body.append(f"return output, {result}")
    return "\n".join(["@tf.function", "def step(x, output_grad):", *indented(body)])


def built(layer: LayerLines) -> list[str]:
    """Return the statements that make a layer and set its parameters."""
    named, source = layer.named, layer.source
    lines = [source.build.assigned_to(layer.name)] if source.build else []
    if source.parameters:
        shape = (None, *channels_last(named.input_shape))
        is_attention = isinstance(named.layer, models.MultiHeadAttention)
        lines.append(str(call(f"{layer.name}.build", *[shape] * (2 if is_attention else 1))))
    for p in source.parameters.values():
        lines.append(bracketed(f"{layer.name}.{p.path}.assign(", [p.value], ")"))
    return lines


def _loss(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    build = loss_source(model.loss)
    body = [
        "with tf.GradientTape() as tape:",
        "    tape.watch(outputs)",
        "    value = loss(labels, outputs)",
        "return value, tape.gradient(value, [outputs])",
    ]
    return Timed(
        definitions=[
            *definitions(str(build)),
            "\n".join(["@tf.function", "def step(outputs, labels):", *indented(body)]),
        ],
        setup=[
            *SETUP,
            build.assigned_to("loss"),
            f"outputs = tf.constant({values(batch_size, *model.output_shape)})",
            f"labels = tf.constant({labels(model, batch_size)})",
        ],
        call=["value, gradients = step(outputs, labels)"],
        numbers={"loss": "value"},
        gradients=["outputs"],
    )


UPDATE = """
@tf.function
def update(gradients):
    optimizer.apply(gradients, variables)
"""


def _optimizer(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    optimizer = model.optimizer
    gradient = f"tf.constant(values(*shape, phase={GRADIENT_PHASE}))"
    variable = f"keras.Variable({SCALE} * values(*shape), dtype=DTYPE)"
    made = optimizer_source(optimizer, "[v for v in variables if len(v.shape) < 2]")
    return Timed(
        definitions=[*definitions("\n".join(made)), UPDATE],
        setup=[
            *SETUP,
            shapes_statement(model),
            f"variables = [{variable} for shape in SHAPES]",
            f"gradients = [{gradient} for shape in SHAPES]",
            *made,
            "optimizer.build(variables)",
            "update(gradients)",
            f"total = sum({TOTAL.format(array='v')} for v in variables)",
        ],
        call=["update(gradients)"],
        numbers={"parameters after the first update": "total"},
    )


def channels_last(shape: Shape) -> Shape:
    return (*shape[1:], shape[0]) if len(shape) == 3 else shape


def layer_source(
    named: NamedLayer, backend: str = "tensorflow", activation: str | None = None
) -> LayerSource:
    """Return how a layer is written. activation: the one that it applies itself, if any."""
    shape, features = named.input_shape, named.input_shape[-1]
    own = parameters(named)
    match named.layer:
        case models.Conv():
            return convolution(named, own, backend, activation)
        case models.MaxPool(window, stride):
            strides = unless(one_or_both(window), one_or_both(stride))
            return layer(call("layers.MaxPooling2D", one_or_both(window), strides=strides))
        case models.ReLU():
            return layer(call("layers.ReLU"))
        case models.GELU(tanh=True):
            return LayerSource(None, "keras.activations.gelu({x}, approximate=True)")
        case models.GELU():
            return layer(call("layers.Activation", '"gelu"'))
        case models.Flatten() if len(shape) == 3:
            channels_first = call("layers.Permute", (3, 1, 2))  # the canonical order
            return LayerSource(call("layers.Flatten"), before=(channels_first,))
        case models.Flatten():
            return layer(call("layers.Flatten"))
        case models.ToSequence():
            return layer(call("layers.Reshape", named.output_shape))
        case models.Dense(width, bias):
            options = {"activation": activation, "use_bias": unless(True, bias)}
            return layer(call("layers.Dense", width, **options), own)
        case models.BatchNorm(epsilon, momentum):
            return layer(call("BatchNorm", momentum=momentum, epsilon=epsilon), own)
        case models.LayerNorm(epsilon, bias):
            center = unless(True, bias)
            return layer(call("layers.LayerNormalization", epsilon=epsilon, center=center), own)
        case models.RMSNorm(epsilon):
            return layer(call("layers.RMSNormalization", epsilon=epsilon), own)
        case models.Dropout(rate):
            return layer(call("layers.Dropout", rate))
        case models.GlobalAveragePool():
            axes = 2 if len(shape) == 3 else 1
            return layer(call(f"layers.GlobalAveragePooling{axes}D"))
        case models.Embedding(vocabulary, width):
            return layer(call("layers.Embedding", vocabulary, width), own)
        case models.OneHot(vocabulary):
            return LayerSource(None, f"ops.one_hot({{x}}, {vocabulary})")
        case models.Unembedding(vocabulary):
            weight = ParameterSource("embeddings", values(vocabulary, features, scale=SCALE))
            build = call("layers.ReversibleEmbedding", vocabulary, features)
            return LayerSource(build, "{layer}({x}, reverse=True)", {"weight": weight})
        case models.PositionEmbedding():
            return layer(call("PositionEmbedding"), own)
        case models.ClassToken():
            return layer(call("ClassToken"), own)
        case models.Residual(()):  # of equal branches
            return LayerSource(None, "{x} + {x}")
        case models.FirstOfSequence():
            return LayerSource(None, "{x}[:, 0]")
        case models.MultiHeadAttention(heads, causal, bias):
            given = (heads, features // heads)
            build = call("layers.MultiHeadAttention", *given, use_bias=unless(True, bias))
            mask = ", use_causal_mask=True" if causal else ""
            return LayerSource(build, f"{{layer}}({{x}}, {{x}}{mask})", own)
        case models.LSTM(width, bidirectional):
            return recurrent(call("layers.LSTM", width), bidirectional, own)
        case models.GRU(width, bidirectional):
            build = call("layers.GRU", width, bias_constraint="OneBias()")
            return recurrent(build, bidirectional, own)
    raise unsupported("layer", named.layer, "Keras")


def layer(build: Call, parameters: Mapping[str, ParameterSource] | None = None) -> LayerSource:
    """Return a layer with the classes and functions of layers.py that it needs."""
    return LayerSource(build, parameters=parameters or {}, definitions=definitions(str(build)))


def recurrent(build: Call, bidirectional: bool, own: dict[str, ParameterSource]) -> LayerSource:
    return layer(call("layers.Bidirectional", build) if bidirectional else build, own)


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
    named: NamedLayer, own: dict[str, ParameterSource], backend: str, activation: str | None
) -> LayerSource:
    """Return how a convolution is written.

    Before it is a padding that Keras cannot do itself, and a stride that is unsafe.
    """
    layer: Any = named.layer
    halves = tuple((size - 1) / 2 for size in layer.kernel)
    is_same = any(layer.padding) and layer.stride == (1, 1) and halves == layer.padding
    unsafe = is_unsafe_for_onednn(layer.kernel, layer.stride, named.input_shape[0])
    is_sliced = unsafe and backend == "torch"  # Keras gives it the channels last
    build = call(
        "layers.Conv2D",
        layer.features,
        one_or_both(layer.kernel),
        strides=None if is_sliced else unless(1, one_or_both(layer.stride)),
        padding='"same"' if is_same else None,
        activation=activation,
        use_bias=unless(True, layer.bias),
    )
    down, right = layer.stride
    output = f"{{layer}}({{x}}[:, ::{down}, ::{right}])" if is_sliced else "{layer}({x})"
    is_padded = any(layer.padding) and not is_same
    before = (call("layers.ZeroPadding2D", layer.padding),) if is_padded else ()
    return LayerSource(build, output, own, before=before)


TO_TENSOR = "tf.convert_to_tensor({gradient})"
"""An embedding's gradient has the rows of the tokens alone."""
FIRST_ROW = "{gradient}[0]"
"""The second row of a GRU's bias is that of cuDNN's formula, and stays at 0."""


def parameters(named: NamedLayer) -> dict[str, ParameterSource]:
    """Return a layer's trained parameters, with the values that the program of a part gives.

    The index of one is the expression of its own gradient, where the variable's is not that.
    """
    own, found = named.layer.parameters(named.input_shape), {}
    for name, place in places(named).items():
        if own[name].trained:
            is_row = isinstance(named.layer, models.GRU) and name.startswith("bias")
            index = TO_TENSOR if isinstance(named.layer, models.Embedding) else ""
            value = place.source(values(*place.shape, scale=SCALE))
            found[name] = ParameterSource(place.path, value, FIRST_ROW if is_row else index)
    return found


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
    raise unsupported("loss", loss, "Keras")


def has_sparse_gradients(model: Model, backend: str) -> bool:
    """Return whether the gradient of an embedding has the rows of the batch's tokens alone."""
    kinds = {type(named.layer) for named in model.all_layers()}
    return backend == "tensorflow" and models.Embedding in kinds


def optimizer_source(
    optimizer: Optimizer,
    not_decaying: str,
    has_sparse: bool = False,
) -> list[str]:
    """Return the statements that make the `optimizer`, with the schedule `rate` if it has one.

    not_decaying: the expression of the variables without weight decay, where it is for matrices
    only. has_sparse: see has_sparse_gradients.
    """
    rate: Any = "rate" if optimizer.schedule else optimizer.learning_rate
    clipped = {"global_clipnorm": optimizer.clip_norm}
    own, kept = ("Dense", "Dense") if has_sparse else ("", "keras.optimizers.")
    match optimizer:
        case models.SGD(_, momentum):
            made = call(f"{kept}SGD", rate, momentum=unless(0, momentum), **clipped)
        case models.Adam(_, beta1, beta2, epsilon):
            betas = {"beta_1": beta1, "beta_2": beta2}
            made = call(f"{own}Adam", rate, **betas, epsilon=epsilon, **clipped)
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            given = {"weight_decay": decay, "epsilon": epsilon}
            betas = {"beta_1": beta1, "beta_2": beta2}
            made = call(f"{own}AdamW", rate, **betas, **given, **clipped)
        case models.RMSprop(_, rho, epsilon):
            made = call(f"{own}RMSprop", rate, rho=rho, epsilon=epsilon, **clipped)
        case models.Adadelta(_, rho, epsilon):
            made = call(f"{kept}Adadelta", rate, rho=rho, epsilon=epsilon, **clipped)
        case _:
            raise unsupported("optimizer", optimizer, "Keras")
    lines = [*schedule_source(optimizer), made.assigned_to("optimizer")]
    if isinstance(optimizer, models.AdamW) and optimizer.matrices_only:
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
            schedule = call(
                f"{schedules}.CosineDecay",
                peak / (warmup + 1),
                steps - warmup,
                alpha=minimum,
                warmup_target=peak,
                warmup_steps=warmup,
            )
        case other:
            raise unsupported("schedule", other, "Keras")
    return [schedule.assigned_to("rate")]
