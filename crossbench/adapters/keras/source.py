"""Write programs in Keras on TensorFlow, as its users do: the line of each layer, loss and
optimizer, and the program of a part of a training step. Imports none of them.
"""

from __future__ import annotations

from typing import Any

from ... import models
from ...models.model import Model, NamedLayer
from ...models.parameters import Shape
from ...models.parts import LOSS, OPTIMIZER, Part
from ...models.training import Optimizer
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
    "keras.config.set_dtype_policy(DTYPE)",
)
MAX_RESULT = WIDTH - len("    return output, ")
TOTAL = "np.abs({array}).sum(dtype=float)"


def part_program(part: Part, model: Model, batch_size: int, threads: int) -> str:
    """Return the program of a part of a training step."""
    timed = {LOSS: _loss, OPTIMIZER: _optimizer}.get(part.name, _layers)
    notes = _deviations(model.optimizer) if part.name == OPTIMIZER else []
    return python_program(
        heading(part, model, "Keras on TensorFlow", batch_size, *notes),
        IMPORTS,
        [f"return {ARRAY}"],
        timed(part, batch_size),
        version="keras {keras.__version__}",
        total=TOTAL,
        THREADS=threads,
    )


def _layers(part: Part, batch_size: int) -> Timed:
    layers = [LayerLines(named, layer_source(named)) for named in part.layers]
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


def channels_last(shape: Shape) -> Shape:
    return (*shape[1:], shape[0]) if len(shape) == 3 else shape


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
        lines.append(str(call(f"{layer.name}.build", *[shape] * (1 + is_attention))))
    for p in source.parameters.values():
        lines.append(bracketed(f"{layer.name}.{p.path}.assign(", [p.value], ")"))
    return lines


def _loss(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    build, value = loss_source(model.loss)
    body = [
        "with tf.GradientTape() as tape:",
        "    tape.watch(outputs)",
        *indented(value),
        "return value, tape.gradient(value, [outputs])",
    ]
    return Timed(
        definitions=["\n".join(["@tf.function", "def step(outputs, labels):", *indented(body)])],
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
    return Timed(
        definitions=[UPDATE],
        setup=[
            *SETUP,
            shapes_statement(model),
            f"variables = [{variable} for shape in SHAPES]",
            f"gradients = [{gradient} for shape in SHAPES]",
            *schedule_source(optimizer),
            *optimizer_source(optimizer),
            "optimizer.build(variables)",
            "update(gradients)",
            f"total = sum({TOTAL.format(array='v')} for v in variables)",
        ],
        call=["update(gradients)"],
        numbers={"parameters after the first update": "total"},
    )


def layer_source(named: NamedLayer) -> LayerSource:
    """Return how a layer is written."""
    shape, features = named.input_shape, named.input_shape[-1]
    own = parameters(named)
    match named.layer:
        case models.Conv():
            return convolution(named.layer, own)
        case models.MaxPool(window, stride):
            strides = unless(one_or_both(window), one_or_both(stride))
            build = call("keras.layers.MaxPooling2D", one_or_both(window), strides=strides)
            return LayerSource(build)
        case models.ReLU():
            return LayerSource(call("keras.layers.ReLU"))
        case models.GELU(tanh):
            return LayerSource(None, f"keras.activations.gelu({{x}}, approximate={tanh})")
        case models.Flatten() if len(shape) == 3:
            # the canonical order is C, H, W
            permuted = "keras.layers.Permute((3, 1, 2))({x})"
            return LayerSource(None, f"keras.layers.Flatten()({permuted})")
        case models.Flatten():
            return LayerSource(call("keras.layers.Flatten"))
        case models.ToSequence():
            return LayerSource(call("keras.layers.Reshape", named.output_shape))
        case models.Dense(width, bias):
            build = call("keras.layers.Dense", width, use_bias=unless(True, bias))
            return LayerSource(build, parameters=own)
        case models.BatchNorm(epsilon, momentum):
            options = {"momentum": momentum, "epsilon": epsilon}
            build = call("keras.layers.BatchNormalization", **options)
            return LayerSource(build, TRAINING, parameters=own)
        case models.LayerNorm(epsilon, bias):
            options = {"epsilon": epsilon, "center": unless(True, bias)}
            return LayerSource(call("keras.layers.LayerNormalization", **options), parameters=own)
        case models.RMSNorm(epsilon):
            build = call("keras.layers.RMSNormalization", epsilon=epsilon)
            return LayerSource(build, parameters=own)
        case models.Dropout(rate):
            return LayerSource(call("keras.layers.Dropout", rate), TRAINING)
        case models.GlobalAveragePool():
            axes = 2 if len(shape) == 3 else 1
            return LayerSource(call(f"keras.layers.GlobalAveragePooling{axes}D"))
        case models.Embedding(vocabulary, width):
            return LayerSource(call("keras.layers.Embedding", vocabulary, width), parameters=own)
        case models.OneHot(vocabulary):
            return LayerSource(None, f"keras.ops.one_hot({{x}}, {vocabulary}, dtype=DTYPE)")
        case models.Unembedding(vocabulary):
            weight = ParameterSource("embeddings", values(vocabulary, features, scale=SCALE))
            build = call("keras.layers.ReversibleEmbedding", vocabulary, features)
            output = "{layer}({x}, reverse=True)"
            return LayerSource(build, output, parameters={"weight": weight})
        case models.PositionEmbedding():
            build = call("PositionEmbedding")
            return LayerSource(build, parameters=own, definitions=(POSITION_EMBEDDING,))
        case models.ClassToken():
            build = call("ClassToken")
            return LayerSource(build, parameters=own, definitions=(CLASS_TOKEN,))
        case models.Residual(()):  # of equal branches
            return LayerSource(None, "{x} + {x}")
        case models.FirstOfSequence():
            return LayerSource(None, "{x}[:, 0]")
        case models.MultiHeadAttention(heads, causal, bias):
            given = (heads, features // heads)
            build = call("keras.layers.MultiHeadAttention", *given, use_bias=unless(True, bias))
            mask = ", use_causal_mask=True" if causal else ""
            return LayerSource(build, f"{{layer}}({{x}}, {{x}}{mask})", parameters=own)
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            build = call(f"keras.layers.{type(named.layer).__name__}", width)
            build = call("keras.layers.Bidirectional", build) if bidirectional else build
            definitions = (SWAPPED,) if isinstance(named.layer, models.GRU) else ()
            return LayerSource(build, parameters=own, definitions=definitions)
    raise unsupported("layer", named.layer, "Keras")


TRAINING = "{layer}({x}, training=True)"


def convolution(layer: models.Conv, own: dict[str, ParameterSource]) -> LayerSource:
    """Return how a convolution is written: with another layer for a padding that it cannot do."""
    halves = tuple((size - 1) / 2 for size in layer.kernel)
    is_same = any(layer.padding) and layer.stride == (1, 1) and halves == layer.padding
    build = call(
        "keras.layers.Conv2D",
        layer.features,
        one_or_both(layer.kernel),
        strides=unless(1, one_or_both(layer.stride)),
        padding='"same"' if is_same else None,
        use_bias=unless(True, layer.bias),
    )
    if is_same or not any(layer.padding):
        return LayerSource(build, parameters=own)
    padding = call("keras.layers.ZeroPadding2D", layer.padding)
    return LayerSource(build, f"{{layer}}({padding}({{x}}))", parameters=own)


PATHS = {"weight": "kernel", "bias": "bias"}
NORM = {"weight": "gamma", "bias": "beta"}
CELL = {"weight_ih": "kernel", "weight_hh": "recurrent_kernel", "bias": "bias"}
TO_TENSOR = "tf.convert_to_tensor({gradient})"
"""An embedding's gradient has the rows of the tokens alone."""
FIRST_ROW = "{gradient}[0]"
"""The second row of a GRU's bias is that of cuDNN's formula, and stays at 0."""


def parameters(named: NamedLayer) -> dict[str, ParameterSource]:
    """Return the trained parameters of a layer, with their axes in Keras' order.

    The index of one is the expression of its own gradient, where the variable's is not that.
    """
    return {
        name: _parameter(named, name, parameter.shape)
        for name, parameter in named.layer.parameters(named.input_shape).items()
        if parameter.trained
    }


def _parameter(named: NamedLayer, name: str, shape: Shape) -> ParameterSource:
    value = values(*shape, scale=SCALE)
    match named.layer:
        case models.Conv() if len(shape) == 4:
            return ParameterSource("kernel", f"{value}.transpose(2, 3, 1, 0)")
        case models.Dense() if len(shape) == 2:
            return ParameterSource("kernel", f"{value}.T")
        case models.BatchNorm() | models.LayerNorm():
            return ParameterSource(NORM[name], value)
        case models.RMSNorm():
            return ParameterSource("scale", value)
        case models.Embedding():
            return ParameterSource("embeddings", value, TO_TENSOR)
        case models.PositionEmbedding() | models.ClassToken():
            return ParameterSource("weight", value)
        case models.MultiHeadAttention(heads):
            return _of_attention(name, value, heads, shape[0])
        case models.LSTM(bidirectional=both) | models.GRU(bidirectional=both):
            base = name.removesuffix("_reverse")
            direction = "forward" if base == name else "backward"
            path = f"{direction}_layer.cell.{CELL[base]}" if both else f"cell.{CELL[base]}"
            return _of_cell(isinstance(named.layer, models.GRU), path, base, value)
    return ParameterSource(PATHS[name], value)


def _of_attention(name: str, value: str, heads: int, features: int) -> ParameterSource:
    """Return a parameter of a MultiHeadAttention; its kernels have an axis for the heads."""
    projection, kind = name.split("_")
    split = (heads, features // heads)
    match projection, kind:
        case "output", "weight":
            value = f"{value}.T.reshape{(*split, features)}"
        case _, "weight":
            value = f"{value}.T.reshape{(features, *split)}"
        case (("query" | "key" | "value"), "bias"):
            value = f"{value}.reshape{split}"
    return ParameterSource(f"{projection}_dense.{PATHS[kind]}", value)


def _of_cell(is_gru: bool, path: str, name: str, value: str) -> ParameterSource:
    """Return a parameter of a recurrent cell; the order of a GRU's gates is another one."""
    value = f"swapped({value})" if is_gru else value
    if name != "bias":
        return ParameterSource(path, f"{value}.T")
    if is_gru:
        return ParameterSource(path, f"np.outer([1, 0], {value})", FIRST_ROW)
    return ParameterSource(path, value)


def loss_source(loss: models.Loss) -> tuple[Call, list[str]]:
    """Return how a loss is made, and the statements that compute the `value` of `outputs`."""
    value = ["value = loss(labels, outputs)"]
    match loss:
        case models.SoftmaxCrossEntropy(smoothing) if smoothing:
            options = {"from_logits": True, "label_smoothing": smoothing}
            one_hot = "one_hot = keras.ops.one_hot(labels, outputs.shape[-1], dtype=DTYPE)"
            build = call("keras.losses.CategoricalCrossentropy", **options)
            return build, [one_hot, "value = loss(one_hot, outputs)"]
        case models.SoftmaxCrossEntropy():
            return call("keras.losses.SparseCategoricalCrossentropy", from_logits=True), value
        case models.BinaryCrossEntropy():
            return call("keras.losses.BinaryCrossentropy", from_logits=True), value
        case models.MeanSquaredError():
            return call("keras.losses.MeanSquaredError"), value
    raise unsupported("loss", loss, "Keras")


def optimizer_source(optimizer: Optimizer) -> list[str]:
    """Return the statements that make the `optimizer` of the `variables`."""
    rate: Any = "rate" if optimizer.schedule else optimizer.learning_rate
    clip = {"global_clipnorm": optimizer.clip_norm}
    match optimizer:
        case models.SGD(_, momentum):
            made = call("keras.optimizers.SGD", rate, momentum=unless(0, momentum), **clip)
        case models.Adam(_, beta1, beta2, epsilon):
            options = {"beta_1": beta1, "beta_2": beta2, "epsilon": epsilon}
            made = call("keras.optimizers.Adam", rate, **options, **clip)
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            options = {"beta_1": beta1, "beta_2": beta2, "epsilon": epsilon}
            made = call("keras.optimizers.AdamW", rate, weight_decay=decay, **options, **clip)
        case models.RMSprop(_, rho, epsilon):
            made = call("keras.optimizers.RMSprop", rate, rho=rho, epsilon=epsilon, **clip)
        case models.Adadelta(_, rho, epsilon):
            made = call("keras.optimizers.Adadelta", rate, rho=rho, epsilon=epsilon, **clip)
        case _:
            raise unsupported("optimizer", optimizer, "Keras")
    lines = [made.assigned_to("optimizer")]
    if isinstance(optimizer, models.AdamW) and optimizer.matrices_only:
        vectors = "[v for v in variables if len(v.shape) < 2]"
        lines.append(f"optimizer.exclude_from_weight_decay({vectors})")
    return lines


def _deviations(optimizer: Optimizer) -> list[str]:
    """Return the sentence on a formula that is Keras' own, in a list."""
    match optimizer:
        case models.Adam() | models.AdamW():
            where = "before the bias correction"
        case models.RMSprop():
            where = "under the root"
        case _:
            return []
    return [f"Keras adds epsilon {where}: its sum may differ in the last digits."]


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


POSITION_EMBEDDING = '''
class PositionEmbedding(keras.layers.Layer):
    """Adds a weight for each place of a sequence."""

    def build(self, input_shape):
        self.weight = self.add_weight(shape=input_shape[1:])

    def call(self, sequences):
        return sequences + self.weight
'''
CLASS_TOKEN = '''
class ClassToken(keras.layers.Layer):
    """Puts the same weight before each sequence."""

    def build(self, input_shape):
        self.weight = self.add_weight(shape=input_shape[-1:])

    def call(self, sequences):
        size = keras.ops.shape(sequences)[0]
        token = keras.ops.broadcast_to(self.weight, (size, 1, sequences.shape[-1]))
        return keras.ops.concatenate([token, sequences], axis=1)
'''
SWAPPED = '''
def swapped(array):
    """Exchange the first two of three gates: Keras' order is update, reset, new."""
    reset, update, new = np.split(array, 3)
    return np.concatenate([update, reset, new])
'''
