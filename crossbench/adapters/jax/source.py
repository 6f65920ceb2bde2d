"""Write layers, losses and optimizers in JAX with Flax NNX and optax, as their users do.

Imports none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ... import models
from ...models.layers.layer import channels
from ...models.model import NamedLayer
from ...models.parameters import Shape
from ...models.training import Optimizer
from ...source.convolutions import pads_same, transposed_padding
from ...source.layers import LayerSource, rescaled
from ...source.statements import WIDTH, Call, call, code, one_or_both, unless, unsupported

Dtypes = Mapping[str, str]
"""Options of each module with parameters, as source code."""
FLOAT32: Dtypes = MappingProxyType({})
"""None: float32 is Flax's default."""
BFLOAT16: Dtypes = MappingProxyType({"dtype": "jnp.bfloat16"})
"""Those of Flax's mixed precision, whose parameters are float32."""
ACTIVATIONS: Mapping[models.Layer, str] = MappingProxyType(
    {
        models.GELU(): "nnx.gelu({x}, approximate=False)",
        models.GELU(tanh=True): "nnx.gelu({x}, approximate=True)",
        models.HardSwish(): "nnx.hard_swish({x})",
        models.ReLU(): "nnx.relu({x})",
        models.ReLU6(): "nnx.relu6({x})",
        models.Sigmoid(): "nnx.sigmoid({x})",
        models.SiLU(): "nnx.silu({x})",
        models.Softplus(): "nnx.softplus({x})",
        models.Tanh(): "nnx.tanh({x})",
    }
)
"""The outputs of those that have no number or parameter."""
OWN_LAYERS = "from crossbench.adapters.jax.patches import PatchConv, disjoint_max_pool"
"""What stands in the place of a layer's definition where a variant has layers of its own."""


def imports(text: str) -> list[str]:
    """Return the statements that import what a text needs of JAX, Flax and optax."""
    lines = ["import jax"]
    lines += ["import jax.numpy as jnp"] if "jnp." in text else []
    lines += ["import numpy as np"] if re.search(r"\bnp\.", text) else []
    lines += ["import optax"] if "optax." in text else []
    lines += ["from flax import nnx"] if "nnx." in text else []
    return lines


def layer_source(named: NamedLayer, dtypes: Dtypes = FLOAT32) -> LayerSource:
    """Return how a layer is written, in the row and in its program."""
    shape = named.input_shape
    features, options = shape[-1], {**dtypes, "rngs": "rngs"}
    match named.layer:
        case models.Convolution():
            return LayerSource(convolution(named.layer, shape, options))
        case models.Pool(is_max=is_max, sizes=sizes, strides=strides, paddings=paddings):
            kind = "nnx.max_pool" if is_max else "nnx.avg_pool"
            sides = tuple((p, p) for p in paddings) if any(paddings) else None
            return LayerSource(None, str(call(kind, "{x}", sizes, strides=strides, padding=sides)))
        case models.Upsample(factor, mode="nearest"):
            return LayerSource(None, f"{{x}}.repeat({factor}, axis=1).repeat({factor}, axis=2)")
        case models.Upsample():
            count, height, width = named.output_shape
            to = f"(len({{x}}), {height}, {width}, {count})"
            return LayerSource(None, f'jax.image.resize({{x}}, {to}, "bilinear")')
        case models.Pad(mode=mode):
            pads = ((0, 0), *((w.before, w.after) for w in named.layer.windows), (0, 0))
            how = '"reflect"' if mode == "reflect" else None
            return LayerSource(None, str(call("jnp.pad", "{x}", pads, mode=how)))
        case layer if layer in ACTIVATIONS:
            return LayerSource(None, ACTIVATIONS[layer])
        case models.LeakyReLU(slope):
            return LayerSource(None, f"nnx.leaky_relu({{x}}, {slope})")
        case models.PReLU(per_channel):
            build = call("PReLU", channels(shape) if per_channel else 1)
            return LayerSource(build, definitions=(PRELU,))
        case models.ELU(alpha):
            return LayerSource(None, str(call("nnx.elu", "{x}", alpha=unless(1, alpha))))
        case models.Rescaling(scale, offset):
            return rescaled(scale, offset)
        case models.Flatten() if len(shape) == 3:
            # the canonical order is C, H, W; XLA fuses the transposition with its neighbours
            return LayerSource(None, "{x}.transpose(0, 3, 1, 2).reshape(len({x}), -1)")
        case models.Flatten():
            return LayerSource(None, "{x}.reshape(len({x}), -1)")
        case models.Reshape(to):
            first = ".transpose(0, 3, 1, 2)" if len(shape) == 3 else ""
            last = ".transpose(0, 2, 3, 1)" if len(to) == 3 else ""
            axes = ", ".join(map(str, to))
            return LayerSource(None, f"{{x}}{first}.reshape(len({{x}}), {axes}){last}")
        case models.Transpose():
            return LayerSource(None, "{x}.swapaxes(1, 2)")
        case models.ToSequence():
            return LayerSource(None, "{x}.reshape(len({x}), -1, {x}.shape[-1])")
        case models.Dense(width, bias):
            given = {"use_bias": unless(True, bias)}
            return LayerSource(call("nnx.Linear", features, width, **given, **options))
        case models.BatchNorm(epsilon, momentum, affine):
            given = {"momentum": momentum, "epsilon": epsilon, **affine_options(affine)}
            build = call("BatchNorm", channels(shape), **given, **options)
            return LayerSource(build, definitions=(BATCH_NORM,))
        case models.GroupNorm(groups, epsilon, affine):
            given = {"epsilon": epsilon, **affine_options(affine)}
            return LayerSource(call("nnx.GroupNorm", shape[0], groups, **given, **options))
        case models.LayerNorm(epsilon, bias, affine):
            given = {"epsilon": epsilon, **affine_options(affine, bias)}
            return LayerSource(call("nnx.LayerNorm", channels(shape), **given, **options))
        case models.RMSNorm(epsilon, affine):
            given = {"epsilon": epsilon, "use_scale": unless(True, affine)}
            return LayerSource(call("nnx.RMSNorm", channels(shape), **given, **options))
        case models.Scale():
            return LayerSource(call("Scale", channels(shape)), definitions=(SCALE,))
        case models.Dropout(rate):
            return LayerSource(call("nnx.Dropout", rate, rngs="rngs"))
        case models.GlobalAveragePool() | models.GlobalMaxPool():
            axes = "(1, 2)" if len(shape) == 3 else "1"
            kind = "mean" if isinstance(named.layer, models.GlobalAveragePool) else "max"
            return LayerSource(None, f"{{x}}.{kind}({axes})")
        case models.Embedding(vocabulary, width):
            return LayerSource(call("nnx.Embed", vocabulary, width, **options))
        case models.OneHot(vocabulary):
            made = call("jax.nn.one_hot", "{x}", vocabulary, dtype=dtypes.get("dtype"))
            return LayerSource(None, str(made))
        case models.Unembedding():
            return LayerSource(None, "{layer}.attend({x})")
        case models.PositionEmbedding():
            return LayerSource(call("PositionEmbedding", *shape), definitions=(POSITION_EMBEDDING,))
        case models.SinusoidalPositions():
            return LayerSource(None, "add_sinusoids({x})", (PLACE_ANGLES, ADD_SINUSOIDS))
        case models.ClassToken():
            return LayerSource(call("ClassToken", features), definitions=(CLASS_TOKEN,))
        case models.FirstOfSequence():
            return LayerSource(None, "{x}[:, 0]")
        case models.MultiHeadAttention(is_plain=False):
            return grouped_attention(named, named.layer, options)
        case models.MultiHeadAttention(heads, causal, bias):
            given = {"use_bias": unless(True, bias), "decode": False}
            build = call("nnx.MultiHeadAttention", heads, features, **given, **options)
            output = "{layer}({x}, is_causal=True)" if causal else "{layer}({x})"
            return LayerSource(build, output)
        case models.LSTM() | models.GRU():
            return recurrent(named, named.layer, options)
    raise unsupported("layer", named.layer, "JAX")


def affine_options(affine: bool, bias: bool = True) -> dict[str, Any]:
    """Return the options of a norm by which it has a weight and a bias, or not."""
    return {"use_scale": unless(True, affine), "use_bias": unless(True, affine and bias)}


def grouped_attention(
    named: NamedLayer, layer: models.MultiHeadAttention, options: Mapping[str, str]
) -> LayerSource:
    """Return how an attention with later options is written. options: of each module."""
    width, norm, rotary = layer.width(named.input_shape), None, None
    if layer.norm:
        norm = str(call("nnx.RMSNorm", width, epsilon=layer.norm.epsilon, **options))
    if own := layer.rotary:
        rotary = str(call("Rotary", own.base, interleaved=own.interleaved or None))
    build = call(
        "GroupedQueryAttention",
        *(named.input_shape[-1], layer.heads, layer.key_heads, width),
        causal=layer.causal or None,
        local_window_size=layer.window and layer.window - 1,
        use_bias=unless(True, layer.bias),
        output_bias=unless(True, layer.has_output_bias),
        query_norm=norm,
        key_norm=norm,
        rotary=rotary,
        **options,
    )
    turned = (PLACE_ANGLES, ROTARY) if rotary else ()
    return LayerSource(build, definitions=(*turned, GROUPED_QUERY_ATTENTION))


def recurrent(
    named: NamedLayer, layer: models.Recurrent, options: Mapping[str, str]
) -> LayerSource:
    """Return how an LSTM or a GRU is written. options: of a cell."""
    is_lstm = isinstance(layer, models.LSTM)
    kind = "nnx.OptimizedLSTMCell" if is_lstm else "nnx.GRUCell"
    definitions: tuple[str, ...] = ()
    if layer.both_biases:  # Flax's cells have one, of the input in a GRU, of the output in an LSTM
        own, other = f"Biased{kind.removeprefix('nnx.')}", "i" if is_lstm else "h"
        inputs = "inputs" if is_lstm else "features"
        given = {"gates": 4 if is_lstm else 3, "other": other, "inputs": inputs}
        kind, definitions = own, (BIASED_CELL.format(name=own, kind=kind, **given),)
    cell = str(call(kind, named.input_shape[-1], layer.features, **options))
    if layer.sequences:
        rnn = call("nnx.RNN", cell)
        build = call("nnx.Bidirectional", rnn, rnn) if layer.bidirectional else rnn
        return LayerSource(build, definitions=definitions)
    if layer.bidirectional:
        name = "LastLSTMOutputs" if is_lstm else "LastGRUOutputs"
        last, first = last_output(named, "last"), last_output(named, "first")
        definitions += (LAST_OUTPUTS.format(name=name, last=last, first=first),)
        return LayerSource(call(name, cell, cell), definitions=definitions)
    return LayerSource(call("nnx.RNN", cell, return_carry=True), definitions=definitions)


def last_output(named: NamedLayer, variable: str) -> str:
    """Return what the result of an nnx.RNN is assigned to: a carry of LSTMs is (c, h)."""
    return f"(_, {variable}), _" if isinstance(named.layer, models.LSTM) else f"{variable}, _"


def convolution(layer: models.Convolution, shape: Shape, options: Mapping[str, str]) -> Call:
    """Return how a convolution is made."""
    given = {
        "strides": unless(1, one_or_both(layer.strides)),
        "padding": _padding(layer),
        "kernel_dilation": unless(1, one_or_both(layer.dilations)),
        "feature_group_count": unless(1, layer.groups),
        "use_bias": unless(True, layer.bias),
    }
    kind = "nnx.Conv"
    if isinstance(layer, models.TransposedConv):
        # otherwise it neither flips the kernel nor takes (in, out) for (out, in)
        kind, given["transpose_kernel"] = "nnx.ConvTranspose", True
    sizes = (layer.channels(shape), layer.features, layer.kernel_size)
    return call(kind, *sizes, **given, **options)


def _padding(layer: models.Convolution) -> Any:
    """Return a convolution's padding; None for Flax's default, "SAME"."""
    if pads_same(layer):
        return None
    if isinstance(layer, models.TransposedConv):
        return transposed_padding(layer)  # Flax's is that of the input with zeros between
    if not layer.is_symmetric:
        return tuple((w.before, w.after) for w in layer.windows)
    padding = tuple(w.before for w in layer.windows)
    return one_or_both(padding) if any(padding) else '"VALID"'


def loss_source(loss: models.Loss) -> list[str]:
    """Return the body of a function of `outputs` and `labels`, which returns the loss."""
    match loss:
        case models.SoftmaxCrossEntropy(smoothing) if smoothing:
            return [
                "one_hot = jax.nn.one_hot(labels, outputs.shape[-1], dtype=outputs.dtype)",
                f"targets = optax.smooth_labels(one_hot, {code(smoothing)})",
                "return optax.softmax_cross_entropy(outputs, targets).mean()",
            ]
        case models.SoftmaxCrossEntropy():
            cross_entropy = "optax.softmax_cross_entropy_with_integer_labels"
            return [f"return {cross_entropy}(outputs, labels).mean()"]
        case models.BinaryCrossEntropy():
            return ["return optax.sigmoid_binary_cross_entropy(outputs[:, 0], labels).mean()"]
        case models.MeanSquaredError():
            return ["return optax.squared_error(outputs, labels).mean()"]
        case models.AbsoluteError():
            return ["return jnp.abs(outputs - labels).mean()"]
        case models.Huber(delta):
            loss_of_each = call("optax.huber_loss", "outputs", "labels", delta=unless(1, delta))
            return [f"return {loss_of_each}.mean()"]
    raise unsupported("loss", loss, "JAX")


def optimizer_source(optimizer: Optimizer, matrices: str) -> Call:
    """Return how an optimizer is written, with its clipping, behind its schedule.

    matrices: the expression of which parameters are matrices, for a weight decay of these alone.
    """
    rules = rule_source(optimizer, matrices)
    if optimizer.clip_norm is not None:
        rules.insert(0, call("optax.clip_by_global_norm", optimizer.clip_norm))
    return call("optax.chain", *rules) if len(rules) > 1 else rules[0]


def rule_source(optimizer: Optimizer, matrices: str) -> list[Call]:
    """Return optax's rules of an optimizer, one after the other, without its clipping."""
    rate: Any = optimizer.learning_rate
    if optimizer.schedule:
        rate = "rate" if isinstance(optimizer.schedule, models.InverseTimeDecay) else "schedule"
    is_masked = isinstance(optimizer, models.Decaying) and optimizer.matrices_only
    mask = matrices if is_masked else None
    match optimizer:
        case models.SGD(_, momentum, nesterov, decay):
            given = {"momentum": unless(0, momentum), "nesterov": unless(False, nesterov)}
            decayed = [call("optax.add_decayed_weights", decay, mask=mask)] if decay else []
            return [*decayed, call("optax.sgd", rate, **given)]
        case models.Adam(_, beta1, beta2, epsilon):
            return [call("optax.adam", rate, b1=beta1, b2=beta2, eps=epsilon)]
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            given = {"b1": beta1, "b2": beta2, "eps": epsilon, "weight_decay": decay}
            return [call("optax.adamw", rate, **given, mask=mask)]
        case models.Lion(_, beta1, beta2, decay):
            given = {"b1": beta1, "b2": beta2, "weight_decay": decay}
            return [call("optax.lion", rate, **given, mask=mask)]
        case models.RMSprop(_, rho, epsilon):
            return [call("optax.rmsprop", rate, decay=rho, eps=epsilon, eps_in_sqrt=False)]
        case models.Adadelta(_, rho, epsilon):
            return [call("optax.adadelta", rate, rho=rho, eps=epsilon)]
        case models.Adagrad(_, initial, epsilon):
            scale = call("optax.scale_by_learning_rate", rate)
            return [call("scale_by_sums", initial, epsilon), scale]
    raise unsupported("optimizer", optimizer, "JAX")


def schedule_source(optimizer: Optimizer) -> tuple[list[str], list[str]]:
    """Return the definition of the function `rate`, or the statements that make optax's `schedule`,
    each in a list; nothing for a constant learning rate.
    """
    peak = optimizer.learning_rate
    match optimizer.schedule:
        case None:
            return [], []
        case models.InverseTimeDecay(decay):
            rate = f"{code(peak)} / (1 + {code(decay)} * step)"
            return [f"def rate(step):\n    return {rate}"], []
        case models.WarmupCosine(warmup, steps, minimum):
            given = {"init_value": peak / (warmup + 1), "peak_value": peak, "warmup_steps": warmup}
            given |= {"decay_steps": steps, "end_value": minimum * peak}
            schedule = call("optax.warmup_cosine_decay_schedule", **given)
        case models.Cosine(steps, minimum):
            schedule = call("optax.cosine_decay_schedule", peak, steps, alpha=unless(0.0, minimum))
        case models.Steps(milestones, gamma):
            scales = f"{{{', '.join(f'{step}: {code(gamma)}' for step in milestones)}}}"
            schedule = call("optax.piecewise_constant_schedule", peak, scales)
        case models.OneCycle(warmup, steps, start, end, linear):
            # optax's one-cycle schedules are this one, with the warm-up as a share of the steps
            scales = f"{{{warmup}: {code(1 / start)}, {steps}: {code(end)}}}"
            kind = '"linear"' if linear else '"cosine"'
            schedule = call("optax.piecewise_interpolate_schedule", kind, start * peak, scales)
        case other:
            raise unsupported("schedule", other, "JAX")
    return [], [schedule.after("schedule = ", WIDTH - 4)]


SCALE_BY_SUMS = '''
def scale_by_sums(initial, eps):
    """Divide by the root of the sum of squares, plus eps; optax adds it under the root."""

    def init(params):
        return jax.tree.map(lambda p: jnp.full_like(p, initial), params)

    def update(updates, sums, params=None):
        sums = jax.tree.map(lambda g, s: s + jnp.square(g), updates, sums)
        return jax.tree.map(lambda g, s: g / (jnp.sqrt(s) + eps), updates, sums), sums

    return optax.GradientTransformation(init, update)
'''
BATCH_NORM = '''
class BatchNorm(nnx.BatchNorm):
    """Divides the running variance by n - 1, not by n."""

    def __call__(self, x):
        before = self.var[...]
        y = super().__call__(x)
        if not self.use_running_average:
            n = x.size // x.shape[-1]
            self.var[...] += (self.var[...] - self.momentum * before) / (n - 1)
        return y
'''
PRELU = '''
class PReLU(nnx.Module):
    """Multiplies negative values by the slope of their channel, or by the only one."""

    def __init__(self, slopes):
        self.slope = nnx.Param(jnp.full(slopes, 0.25))

    def __call__(self, x):
        return jnp.where(x > 0, x, self.slope[...].astype(x.dtype) * x)
'''
SCALE = '''
class Scale(nnx.Module):
    """Multiplies each channel by a weight."""

    def __init__(self, channels):
        self.weight = nnx.Param(jnp.ones(channels))

    def __call__(self, x):
        return x * self.weight[...].astype(x.dtype)
'''
POSITION_EMBEDDING = '''
class PositionEmbedding(nnx.Module):
    """Adds a weight for each place of a sequence."""

    def __init__(self, *shape):
        self.embedding = nnx.Param(jnp.zeros(shape))

    def __call__(self, sequences):
        return sequences + self.embedding[...].astype(sequences.dtype)
'''
PLACE_ANGLES = '''
def place_angles(length, features, base):
    """Returns the angle of each place and pair of features, in float64."""
    frequencies = base ** (-np.arange(0, features, 2) / features)
    return np.outer(np.arange(length), frequencies)
'''
ADD_SINUSOIDS = '''
def add_sinusoids(sequences):
    """Adds sines and cosines of the place, in turn (Vaswani et al., 2017)."""
    _, length, features = sequences.shape
    angles = place_angles(length, features, 10000.0)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return sequences + jnp.asarray(table.reshape(length, features), sequences.dtype)
'''
ROTARY = '''
class Rotary(nnx.Module):
    """Rotates pairs of the features (batch, length, heads, width) by angles that grow with
    the place: the i-th of both halves, as Llama does, or neighbours, as GPT-J does.
    """

    def __init__(self, base, interleaved=False):
        self.base = base
        self.axis, self.pairs = (-1, (-1, 2)) if interleaved else (-2, (2, -1))

    def __call__(self, x):
        _, length, _, width = x.shape
        angles = place_angles(length, width, self.base)[:, None]
        cos = jnp.asarray(np.cos(angles), x.dtype)
        sin = jnp.asarray(np.sin(angles), x.dtype)
        pairs = x.reshape(*x.shape[:-1], *self.pairs)
        a, b = jnp.moveaxis(pairs, self.axis, 0)
        rotated = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=self.axis)
        return rotated.reshape(x.shape)
'''
GROUPED_QUERY_ATTENTION = '''
class GroupedQueryAttention(nnx.Module):
    """Attends with heads of queries that share keys and values; Flax' own attention has no
    rotary embedding and no window.

    width: features of a head. query_norm, key_norm: of each head, before the rotary
    embedding.
    """

    def __init__(
        self,
        features,
        heads,
        kv_heads,
        width,
        *,
        causal=False,
        local_window_size=None,
        use_bias=True,
        output_bias=True,
        query_norm=jax.nn.identity,
        key_norm=jax.nn.identity,
        rotary=jax.nn.identity,
        dtype=None,
        rngs,
    ):
        options = {"dtype": dtype, "rngs": rngs}

        def project(heads):
            shape = (heads, width)
            return nnx.LinearGeneral(features, shape, use_bias=use_bias, **options)

        self.query, self.key, self.value = map(project, (heads, kv_heads, kv_heads))
        self.out = nnx.LinearGeneral(
            (heads, width), features, axis=(-2, -1), use_bias=output_bias, **options
        )
        self.query_norm, self.key_norm, self.rotary = query_norm, key_norm, rotary
        self.causal, self.window = causal, local_window_size
        self.attention_fn = jax.nn.dot_product_attention

    def __call__(self, x):
        query = self.rotary(self.query_norm(self.query(x)))
        key = self.rotary(self.key_norm(self.key(x)))
        options = {"is_causal": self.causal, "local_window_size": self.window}
        return self.out(self.attention_fn(query, key, self.value(x), **options))
'''
CLASS_TOKEN = '''
class ClassToken(nnx.Module):
    """Puts the same weight before each sequence."""

    def __init__(self, features):
        self.embedding = nnx.Param(jnp.zeros(features))

    def __call__(self, sequences):
        size, _, features = sequences.shape
        token = self.embedding[...].astype(sequences.dtype)
        token = jnp.broadcast_to(token, (size, 1, features))
        return jnp.concatenate([token, sequences], axis=1)
'''
LAST_OUTPUTS = '''
class {name}(nnx.Module):
    """Runs a cell along the sequences and one in reverse; returns their last outputs."""

    def __init__(self, forward, backward):
        self.forward = nnx.RNN(forward, return_carry=True)
        self.backward = nnx.RNN(backward, return_carry=True, reverse=True)

    def __call__(self, sequences):
        {last} = self.forward(sequences)
        {first} = self.backward(sequences)
        return jnp.concatenate([last, first], axis=-1)
'''
BIASED_CELL = '''
class {name}({kind}):
    """Has both biases of cuDNN's formula."""

    def __init__(self, inputs, features, **options):
        super().__init__(inputs, features, **options)
        self.dense_{other} = nnx.Linear({inputs}, {gates} * features, **options)
'''
