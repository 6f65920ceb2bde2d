"""Write programs in JAX with Flax NNX and optax, as their users do: the line of each layer, loss
and optimizer, and the program of a part of a training step. Imports none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ... import models
from ...models.model import Model, NamedLayer
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
    code,
    indented,
    one_or_both,
    unless,
    unsupported,
)
from ...source.training_programs import cpus_note, import_order
from .parameters import places

Dtypes = Mapping[str, str]
"""Options of each module with parameters, as source code."""
FLOAT32: Dtypes = MappingProxyType({})
"""None: float32 is Flax's default."""
BFLOAT16: Dtypes = MappingProxyType({"dtype": "jnp.bfloat16"})
"""Those of Flax's mixed precision, whose parameters are float32."""
OF_DTYPE: Dtypes = MappingProxyType({"param_dtype": "DTYPE"})
"""Those in the program of a part, whose parameters are of the program's DTYPE."""
OWN_LAYERS = "from crossbench.adapters.jax.patches import PatchConv, disjoint_max_pool"
"""What stands in the place of a layer's definition where a variant has layers of its own."""
SETUP = (
    'jax.config.update("jax_platforms", "cpu")',
    'jax.config.update("jax_enable_x64", DTYPE == "float64")',
)
TOTAL = "np.abs({array}).sum(dtype=float)"


def part_program(part: Part, model: Model, batch_size: int, threads: int) -> str:
    """Return the program of a part of a training step."""
    timed = {LOSS: _loss, OPTIMIZER: _optimizer}.get(part.name, _layers)(part, batch_size)
    return python_program(
        heading(part, model, "JAX", batch_size, cpus_note("XLA", threads)),
        _part_imports("\n".join([*timed.definitions, *timed.setup])),
        [f"return {ARRAY}"],
        timed,
        version="jax {jax.__version__}",
        total=TOTAL,
    )


def _part_imports(text: str) -> str:
    """Return the imports of a part's program."""
    lines = sorted(["import numpy as np", *imports(text).splitlines()], key=import_order)
    return "\n".join(["import time", "", *lines])


def imports(text: str) -> str:
    """Return the imports of JAX, Flax and optax that a text needs."""
    lines = ["import jax"]
    lines += ["import jax.numpy as jnp"] if "jnp." in text else []
    lines += ["import optax"] if "optax." in text else []
    lines += ["from flax import nnx"] if "nnx." in text else []
    return "\n".join(lines)


def _layers(part: Part, batch_size: int) -> Timed:
    layers = [LayerLines(named, layer_source(named, OF_DTYPE)) for named in part.layers]
    modules = [layer for layer in layers if layer.source.build]
    step = _Step(part, layers, modules)
    gradient = batch_values(batch_size, *part.layers[-1].output_shape, phase=GRADIENT_PHASE)
    needs_rngs = any("rngs=rngs" in str(layer.source.build) for layer in modules)
    return Timed(
        definitions=[
            *(text for layer in layers for text in layer.source.definitions),
            step.definition(),
        ],
        setup=[
            *SETUP,
            *["rngs = nnx.Rngs(0)"] * needs_rngs,
            *(line for layer in modules for line in built(layer)),
            *step.split(),
            bracketed("x = jax.device_put(", [batch_inputs(part, batch_size)], ")"),
            bracketed("output_grad = jax.device_put(", [gradient], ")"),
        ],
        call=step.call(),
        numbers=outputs(part, TOTAL.format(array="output"), "(output == 0).mean()"),
        gradients=gradients(part, layers, "grads.{path}[...]", of_input="x_grad"),
    )


class _Step:
    """Writes the jitted function of a forward and backward pass, and its call.

    A module is an argument, since it is a pytree; where the pass changes one, its parameters and
    its state are arguments, and the new state is a result.
    """

    def __init__(self, part: Part, layers: list[LayerLines], modules: list[LayerLines]) -> None:
        self.part, self.layers = part, layers
        self.changes = any(layer.source.changes for layer in modules)
        trained = [layer.name for layer in modules if layer.source.parameters]
        self.names = ", ".join(layer.name for layer in modules)
        self.modules = f"({self.names})" if len(modules) > 1 else self.names
        self.trained = ["parameters"] * bool(trained) if self.changes else trained
        self.given = [*self.trained, *["state"] * self.changes]

    def split(self) -> list[str]:
        """Return the statement that splits the modules, if a pass changes one."""
        kinds = ", nnx.Param, ..." if self.trained else ""
        line = f"graphdef, {', '.join(self.given)} = nnx.split({self.modules}{kinds})"
        return [line] * self.changes

    def call(self) -> list[str]:
        """Return the statements that are timed."""
        step = f"step({', '.join([*self.given, 'x', 'output_grad'])})"
        found = ["output", *["grads"] * bool(self.trained), *["x_grad"] * bool(self.part.before)]
        results, state = ", ".join(found), ", state" * self.changes
        line = f"{results} = jax.block_until_ready({step})"
        if len(line) <= WIDTH - 4 and not self.changes:
            return [line]
        return [f"{results}{state} = {step}", f"jax.block_until_ready(({results}))"]

    def definition(self) -> str:
        primals = [*self.trained, *["x"] * bool(self.part.before)]
        new_state = ", new_state" * self.changes
        body = [
            *self._pullback(primals, new_state),
            f"return output, *backward(output_grad){new_state}",
        ]
        given = ", ".join([*self.given, "x", "output_grad"])
        return "\n".join(["@jax.jit", f"def step({given}):", *indented(body)])

    def _pullback(self, primals: list[str], new_state: str) -> list[str]:
        """Return the statements of the forward pass, which give its backward pass too."""
        lines = output_lines(self.layers, "return ")
        if len(lines) == 1 and not self.changes:
            function = f"lambda {', '.join(primals)}: {lines[0].removeprefix('return ')}"
            short = f"output, backward = jax.vjp({', '.join([function, *primals])})"
            if len(short) <= WIDTH - 4:
                return [short]
        if self.changes:
            merge = f"{self.names} = nnx.merge(graphdef, {', '.join(self.given)}, copy=True)"
            lines = [merge, *lines[:-1], f"{lines[-1]}, nnx.state({self.modules}, {STATE})"]
        primals_and_options = ["forward", *primals, *["has_aux=True"] * self.changes]
        return [
            f"def forward({', '.join(primals)}):",
            *indented(lines),
            "",
            f"output, backward{new_state} = jax.vjp({', '.join(primals_and_options)})",
        ]


STATE = "nnx.Not(nnx.Param)"


def built(layer: LayerLines) -> list[str]:
    """Return the statements that make a module and set its parameters."""
    source = layer.source
    lines = [source.build.assigned_to(layer.name)] if source.build else []
    lines += [f"{layer.name}.{p.path}[...] = {p.value}" for p in source.parameters.values()]
    return lines


def _loss(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    body = [
        "def loss(outputs):",
        *indented(loss_source(model.loss)),
        "",
        "return jax.value_and_grad(loss)(outputs)",
    ]
    return Timed(
        definitions=["\n".join(["@jax.jit", "def step(outputs, labels):", *indented(body)])],
        setup=[
            *SETUP,
            f"outputs = jax.device_put({values(batch_size, *model.output_shape)})",
            f"labels = jax.device_put({labels(model, batch_size)})",
        ],
        call=["value, outputs_grad = jax.block_until_ready(step(outputs, labels))"],
        numbers={"loss": "value"},
        gradients={"outputs": "outputs_grad"},
    )


UPDATE = """
@jax.jit(donate_argnums=(0, 1))
def update(parameters, state, gradients):
    updates, state = optimizer.update(gradients, state, parameters)
    return optax.apply_updates(parameters, updates), state
"""


def _optimizer(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    optimizer = model.optimizer
    definitions, schedule = schedule_source(optimizer)
    rule = optimizer_source(optimizer, "[len(shape) > 1 for shape in SHAPES]")
    called = "parameters, state = jax.block_until_ready(update(parameters, state, gradients))"
    return Timed(
        definitions=[*definitions, UPDATE],
        setup=[
            *SETUP,
            shapes_statement(model),
            # copies of their own, because the update overwrites them
            f"parameters = [jnp.array({SCALE} * values(*shape)) for shape in SHAPES]",
            f"gradients = [jnp.array(values(*shape, phase={GRADIENT_PHASE})) for shape in SHAPES]",
            *schedule,
            rule.assigned_to("optimizer"),
            "state = optimizer.init(parameters)",
            called,
            f"total = sum({TOTAL.format(array='p')} for p in parameters)",
        ],
        call=[called],
        numbers={"parameters after the first update": "total"},
    )


def layer_source(named: NamedLayer, dtypes: Dtypes = FLOAT32) -> LayerSource:
    """Return how a layer is written, in the row and in its program."""
    shape = named.input_shape
    features, options = shape[-1], {**dtypes, "rngs": "rngs"}
    own = parameters(named)
    match named.layer:
        case models.Conv(channels, kernel, stride, padding, bias):
            given = {
                "strides": unless(1, one_or_both(stride)),
                "padding": _padding(kernel, stride, padding),
                "use_bias": unless(True, bias),
            }
            build = call("nnx.Conv", shape[0], channels, kernel, **given, **options)
            return LayerSource(build, parameters=own)
        case models.MaxPool(window, stride):
            return LayerSource(None, f"nnx.max_pool({{x}}, {window}, strides={stride})")
        case models.ReLU():
            return LayerSource(None, "nnx.relu({x})")
        case models.GELU(tanh):
            return LayerSource(None, f"nnx.gelu({{x}}, approximate={tanh})")
        case models.Flatten() if len(shape) == 3:
            # the canonical order is C, H, W; XLA fuses the transposition with its neighbours
            return LayerSource(None, "{x}.transpose(0, 3, 1, 2).reshape(len({x}), -1)")
        case models.Flatten():
            return LayerSource(None, "{x}.reshape(len({x}), -1)")
        case models.ToSequence():
            return LayerSource(None, "{x}.reshape(len({x}), -1, {x}.shape[-1])")
        case models.Dense(width, bias):
            build = call("nnx.Linear", features, width, use_bias=unless(True, bias), **options)
            return LayerSource(build, parameters=own)
        case models.BatchNorm(epsilon, momentum):
            given = {"momentum": momentum, "epsilon": epsilon}
            build = call("BatchNorm", shape[0], **given, **options)
            return LayerSource(build, parameters=own, definitions=(BATCH_NORM,), changes=True)
        case models.LayerNorm(epsilon, bias):
            given = {"epsilon": epsilon, "use_bias": unless(True, bias)}
            return LayerSource(call("nnx.LayerNorm", features, **given, **options), parameters=own)
        case models.RMSNorm(epsilon):
            build = call("nnx.RMSNorm", features, epsilon=epsilon, **options)
            return LayerSource(build, parameters=own)
        case models.Dropout(rate):
            return LayerSource(call("nnx.Dropout", rate, rngs="rngs"), changes=True)
        case models.GlobalAveragePool():
            axes = "(1, 2)" if len(shape) == 3 else "1"
            return LayerSource(None, f"{{x}}.mean({axes})")
        case models.Embedding(vocabulary, width):
            return LayerSource(call("nnx.Embed", vocabulary, width, **options), parameters=own)
        case models.OneHot(vocabulary):
            made = call("jax.nn.one_hot", "{x}", vocabulary, dtype=dtypes.get("dtype"))
            return LayerSource(None, str(made))
        case models.Unembedding(vocabulary):
            weight = ParameterSource("embedding", values(vocabulary, features, scale=SCALE))
            build = call("nnx.Embed", vocabulary, features, **options)
            return LayerSource(build, "{layer}.attend({x})", parameters={"weight": weight})
        case models.PositionEmbedding():
            build = call("PositionEmbedding", *shape)
            return LayerSource(build, parameters=own, definitions=(POSITION_EMBEDDING,))
        case models.ClassToken():
            build = call("ClassToken", features)
            return LayerSource(build, parameters=own, definitions=(CLASS_TOKEN,))
        case models.Residual(()):  # of equal branches
            return LayerSource(None, "{x} + {x}")
        case models.FirstOfSequence():
            return LayerSource(None, "{x}[:, 0]")
        case models.MultiHeadAttention(heads, causal, bias):
            given = {"use_bias": unless(True, bias), "decode": False}
            build = call("nnx.MultiHeadAttention", heads, features, **given, **options)
            output = "{layer}({x}, is_causal=True)" if causal else "{layer}({x})"
            return LayerSource(build, output, parameters=own)
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            return recurrent(named, width, bidirectional, options)
    raise unsupported("layer", named.layer, "JAX")


def recurrent(
    named: NamedLayer, width: int, bidirectional: bool, options: Mapping[str, str]
) -> LayerSource:
    """Return how an LSTM or a GRU is written. options: of a cell."""
    is_lstm = isinstance(named.layer, models.LSTM)
    kind = "nnx.OptimizedLSTMCell" if is_lstm else "nnx.GRUCell"
    cell = str(call(kind, named.input_shape[-1], width, **options))
    own = parameters(named)
    if bidirectional:
        name = "LastLSTMOutputs" if is_lstm else "LastGRUOutputs"
        last, first = last_output(named, "last"), last_output(named, "first")
        definitions = (LAST_OUTPUTS.format(name=name, last=last, first=first),)
        return LayerSource(call(name, cell, cell), parameters=own, definitions=definitions)
    build = call("nnx.RNN", cell, return_carry=True)
    output = "{layer}({x})[0][1]" if is_lstm else "{layer}({x})[0]"
    return LayerSource(build, output, parameters=own)


def last_output(named: NamedLayer, variable: str) -> str:
    """Return what the result of an nnx.RNN is assigned to: a carry of LSTMs is (c, h)."""
    return f"(_, {variable}), _" if isinstance(named.layer, models.LSTM) else f"{variable}, _"


def _padding(kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> Any:
    """Return a convolution's padding; None for Flax's default, with which the size stays."""
    if stride == (1, 1) and kernel == tuple(2 * p + 1 for p in padding):
        return None
    return '"VALID"' if padding == (0, 0) else one_or_both(padding)


def parameters(named: NamedLayer) -> dict[str, ParameterSource]:
    """Return a layer's trained parameters, with the values that the program of a part gives."""
    own = named.layer.parameters(named.input_shape)
    return {
        name: ParameterSource(place.path, place.source(values(*place.shape, scale=SCALE)))
        for name, place in places(named).items()
        if own[name].trained
    }


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
    raise unsupported("loss", loss, "JAX")


def optimizer_source(optimizer: Optimizer, matrices: str) -> Call:
    """Return how an optimizer is written, with its clipping, behind its schedule.

    matrices: the expression of which parameters are matrices, for a weight decay of these alone.
    """
    rule = rule_source(optimizer, matrices)
    if optimizer.clip_norm is None:
        return rule
    return call("optax.chain", call("optax.clip_by_global_norm", optimizer.clip_norm), rule)


def rule_source(optimizer: Optimizer, matrices: str) -> Call:
    """Return optax's rule of an optimizer, without its clipping."""
    rate: Any = optimizer.learning_rate
    if optimizer.schedule:
        rate = "rate" if isinstance(optimizer.schedule, models.InverseTimeDecay) else "schedule"
    match optimizer:
        case models.SGD(_, momentum):
            return call("optax.sgd", rate, momentum=unless(0, momentum))
        case models.Adam(_, beta1, beta2, epsilon):
            return call("optax.adam", rate, b1=beta1, b2=beta2, eps=epsilon)
        case models.AdamW(_, beta1, beta2, epsilon, decay, matrices_only):
            given = {"b1": beta1, "b2": beta2, "eps": epsilon, "weight_decay": decay}
            return call("optax.adamw", rate, **given, mask=matrices if matrices_only else None)
        case models.RMSprop(_, rho, epsilon):
            return call("optax.rmsprop", rate, decay=rho, eps=epsilon, eps_in_sqrt=False)
        case models.Adadelta(_, rho, epsilon):
            return call("optax.adadelta", rate, rho=rho, eps=epsilon)
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
            schedule = call(
                "optax.warmup_cosine_decay_schedule",
                init_value=peak / (warmup + 1),
                peak_value=peak,
                warmup_steps=warmup,
                decay_steps=steps,
                end_value=minimum * peak,
            )
            return [], [schedule.assigned_to("schedule")]
    raise unsupported("schedule", optimizer.schedule, "JAX")


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
POSITION_EMBEDDING = '''
class PositionEmbedding(nnx.Module):
    """Adds a weight for each place of a sequence."""

    def __init__(self, *shape):
        self.embedding = nnx.Param(jnp.zeros(shape))

    def __call__(self, sequences):
        return sequences + self.embedding[...].astype(sequences.dtype)
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
