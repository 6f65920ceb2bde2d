"""Write the training of a model in Equinox: the module that a row runs, and the program that is
this module with arguments, data, initial weights and a loop. Imports no Equinox.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crossbench import models
from crossbench.adapters.jax.source import loss_source, optimizer_source, schedule_source
from crossbench.models import Model, NamedLayer, Weights
from crossbench.source.data import example_arrays, python_data
from crossbench.source.definitions import definitions_in
from crossbench.source.statements import Call, bracketed, call, indented, join_blocks, unless
from crossbench.source.training_programs import (
    PythonProgram,
    Training,
    predicted,
    python_training_program,
)

__all__ = ["example_arrays", "initial_arrays", "training_program"]

LAYERS = Path(__file__).with_name("layers.py")
SEED = 0
"""Seed of the dropout masks."""


@dataclass(frozen=True)
class TrainingSource:
    """Holds the source code of a model's training.

    definitions: what Equinox lacks, and `make_model`. optimizer: the statements that make it.
    functions: `compute_gradients`, `train_step` and `predict`, with what these need.
    """

    definitions: Sequence[str]
    optimizer: Sequence[str]
    functions: Sequence[str]

    @property
    def module(self) -> str:
        """Return the Python module of the training."""
        blocks = [*self.definitions, "\n".join(self.optimizer), *self.functions]
        return join_blocks(["\n".join(IMPORTS), *blocks])


IMPORTS = ("import equinox as eqx", "import jax", "import jax.numpy as jnp", "import optax")


def training_source(model: Model) -> TrainingSource:
    """Return the source code of a model's training; raise NotImplementedError for what it lacks."""
    rule = model.optimizer
    is_masked = isinstance(rule, models.Decaying) and rule.matrices_only
    if is_masked or isinstance(rule, models.Adagrad):
        raise NotImplementedError(f"the Equinox adapter does not support the optimizer {rule}")
    if isinstance(model.loss, models.SoftmaxCrossEntropy) and len(model.output_shape) == 3:
        raise NotImplementedError("the Equinox adapter does not support a class for each pixel")
    rate, schedule = schedule_source(rule)
    given = isinstance(model.loss, models.GivenGradient)
    loss = ["return (outputs * labels).sum()"] if given else loss_source(model.loss)
    made = bracketed("return eqx.nn.Sequential([", map(layer, model.named_layers()), "])", 84)
    make_model = ["def make_model():", *indented([KEY, made])]
    definitions = [*definitions_in(made, LAYERS), *rate, "\n".join(make_model)]
    functions = ["\n".join(["def loss_fn(outputs, labels):", *indented(loss)]), FUNCTIONS.strip()]
    optimizer = [*schedule, optimizer_source(rule, "").assigned_to("optimizer")]
    return TrainingSource(definitions, optimizer, functions)


def training_program(training: Training) -> str:
    """Return the program that trains a model; raise NotImplementedError where it cannot."""
    written, on_gpu = training_source(training.model), training.device == "gpu"
    batches = "map(jax.device_put, augmented(*train, epoch))"
    prepared = [] if training.is_augmented else [PREPARED]
    platform = f'jax.config.update("jax_platforms", "{"cuda" if on_gpu else "cpu"}")'
    program = PythonProgram(
        title="Equinox",
        imports=IMPORTS,
        setup=[platform, *[HIGHEST] * on_gpu],
        definitions=written.definitions,
        model=["train, test = load_data()", *prepared, "", *MODEL, *written.optimizer, *STATE],
        functions=written.functions,
        epoch=[
            "losses = []",
            f"for batch in {batches if training.is_augmented else 'prepared'}:",
            "    trained, loss = train_step(batch, *trained)",
            "    losses.append(loss)",
            "jax.block_until_ready(trained)",
            "losses = jax.device_get(losses)",
        ],
        evaluation=[
            "right, (model, state, *_) = 0, trained",
            "for inputs, labels in batches(*test, TEST):",
            f"    right += ({predicted(training.model, 'predict(model, state, inputs)')} == labels)"
            ".sum()",
        ],
    )
    return python_training_program(training, python_data(training), program)


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return the trained weights in the order of the model's leaves, which is the canonical one."""
    found = {}
    for named in training.model.all_layers():
        is_conv = isinstance(named.layer, models.Conv)
        for name, parameter in named.parameters.items():
            if parameter.trained:
                array = weights[name]
                found[name] = array[:, None, None] if is_conv and array.ndim == 1 else array
    return found


def sequential(layers: Iterable[NamedLayer]) -> Call:
    made = ", ".join(str(layer(named)) for named in layers)
    return Call("eqx.nn.Sequential", (f"[{made}]",))


def layer(named: NamedLayer) -> Call:
    """Return how a layer is written, for one example."""
    inputs = named.input_shape
    match named.layer:
        case models.Conv(features, kernel, stride, padding, bias, _, groups, dilation) as conv:
            sides = tuple((window.before, window.after) for window in conv.windows)
            options = {
                "stride": unless((1, 1), stride),
                "padding": unless((0, 0), padding if conv.is_symmetric else sides),
                "dilation": unless((1, 1), dilation),
                "groups": unless(1, groups),
                "use_bias": unless(True, bias),
            }
            return call("eqx.nn.Conv2d", inputs[0], features, kernel, **options, key="key")
        case models.MaxPool(window, stride, padding):
            return call("eqx.nn.MaxPool2d", window, stride, padding=unless((0, 0), padding))
        case models.AveragePool(window, stride, padding):
            return call("eqx.nn.AvgPool2d", window, stride, padding=unless((0, 0), padding))
        case models.ReLU():
            return function("jax.nn.relu")
        case models.LeakyReLU(slope):
            return function(f"lambda x: jax.nn.leaky_relu(x, {slope})")
        case models.GELU(tanh):
            return function(f"lambda x: jax.nn.gelu(x, approximate={tanh})")
        case models.Flatten():
            return function("jnp.ravel")
        case models.Dense(features, bias):
            use_bias = unless(True, bias)
            return call("eqx.nn.Linear", inputs[-1], features, use_bias=use_bias, key="key")
        case models.BatchNorm(epsilon, momentum, affine=True):
            return call("BatchNorm", inputs[0], epsilon, momentum)
        case models.Dropout(rate):
            return call("eqx.nn.Dropout", rate)
        case models.GlobalAveragePool():
            return function(f"lambda x: x.mean({0 if len(inputs) == 2 else (1, 2)})")
        case models.Embedding(vocabulary, features):
            embedding = call("eqx.nn.Embedding", vocabulary, features, key="key")
            return function(f"eqx.filter_vmap({embedding})")
        case models.OneHot(vocabulary):
            return function(f"lambda x: jax.nn.one_hot(x, {vocabulary})")
        case models.Recurrent(features, bidirectional, sequences, both_biases=False):
            kind = "eqx.nn.LSTMCell" if isinstance(named.layer, models.LSTM) else "gru_cell"
            cells = f"{1 + bidirectional} * [{call(kind, inputs[-1], features, key='key')}]"
            return call("Recurrent", cells, sequences=unless(False, sequences))
        case models.Branches((_, _), "add"):
            return Call("Residual", tuple(map(sequential, named.branches)))
    raise NotImplementedError(f"the Equinox adapter does not support the layer {named.layer}")


def function(source: str) -> Call:
    return call("eqx.nn.Lambda", source)


KEY = "key = jax.random.key(0)  # of initial values that are replaced"
HIGHEST = 'jax.config.update("jax_default_matmul_precision", "highest")  # not TF32'
PREPARED = "prepared = jax.device_put(list(batches(*train, BATCHES * BATCH_SIZE)))"
MODEL = (
    "model, state = eqx.nn.make_with_state(make_model)()",
    "weights = np.load(options.initial)",
    "leaves = [jnp.asarray(weights[name]) for name in weights]",
    "structure = jax.tree.structure(eqx.filter(model, eqx.is_inexact_array))",
    "model = eqx.combine(jax.tree.unflatten(structure, leaves), model)",
)
STATE = (
    "optimizer_state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))",
    f"trained = model, state, optimizer_state, jax.random.key({SEED})",
)
FUNCTIONS = """
@eqx.filter_value_and_grad(has_aux=True)
def differentiated(model, state, key, batch):
    inputs, labels = batch
    forward = jax.vmap(
        lambda x, key: model(x, state, key=key), axis_name="batch", out_axes=(0, None)
    )
    outputs, after = forward(inputs, jax.random.split(key, len(labels)))
    return loss_fn(outputs, labels), (after, outputs)


compute_gradients = eqx.filter_jit(differentiated)


@eqx.filter_jit(donate="all-except-first")
def train_step(batch, model, state, optimizer_state, key):
    key, own_key = jax.random.split(key)
    (loss, (state, _)), gradients = differentiated(model, state, own_key, batch)
    trained = eqx.filter(model, eqx.is_inexact_array)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, trained)
    return (eqx.apply_updates(model, updates), state, optimizer_state, key), loss


@eqx.filter_jit
def predict(model, state, inputs):
    model = eqx.nn.inference_mode(model)
    return jax.vmap(lambda x: model(x, state)[0])(inputs)
"""
