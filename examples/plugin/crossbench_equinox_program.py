"""Write the program in Equinox that trains a model: of convolutions, max-pools and dense layers."""

from __future__ import annotations

import numpy as np

from crossbench import models
from crossbench.models import NamedLayer, Weights
from crossbench.source.data import example_arrays, python_data
from crossbench.source.statements import Call, bracketed, call, unless, unsupported
from crossbench.source.training_programs import (
    PythonProgram,
    Training,
    python_training_program,
)

__all__ = ["example_arrays", "initial_arrays", "training_program"]

TITLE = "Equinox"


def training_program(training: Training) -> str:
    """Return the program that trains a model; raise NotImplementedError where it cannot."""
    if training.is_augmented:
        raise unsupported("augmentation", training.model.data, TITLE)
    layers = [layer(named) for named in training.model.named_layers()]
    place = "gpu" if training.device == "gpu" else "cpu"
    program = PythonProgram(
        title=TITLE,
        imports=["import equinox as eqx", "import jax", "import jax.numpy as jnp", "import optax"],
        setup=[
            f'jax.config.update("jax_platforms", "{"cuda" if place == "gpu" else place}")',
        ],
        definitions=[],
        model=[
            "train, test = load_data()",
            "prepared = jax.device_put(list(batches(*train, BATCHES * BATCH_SIZE)))",
            "",
            "key = jax.random.key(0)  # of initial values that are replaced",
            bracketed("model = eqx.nn.Sequential([", layers, "])"),
            *LOAD_WEIGHTS,
            optimizer(training.model.optimizer).assigned_to("optimizer"),
            "state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))",
        ],
        functions=[STEP.format(loss=loss(training.model.loss)), COUNT_RIGHT],
        epoch=EPOCH,
        evaluation=[
            "right = 0",
            "for inputs, labels in batches(*test, TEST):",
            "    right += count_right(model, inputs, labels)",
        ],
    )
    return python_training_program(training, python_data(training), program)


def layer(named: NamedLayer) -> Call:
    """Return how a layer is written, for one example."""
    inputs = named.input_shape
    match named.layer:
        case models.Conv(features, kernel, stride, padding, bias):
            options = {"stride": unless((1, 1), stride), "padding": unless((0, 0), padding)}
            options["use_bias"] = unless(True, bias)
            return call("eqx.nn.Conv2d", inputs[0], features, kernel, **options, key="key")
        case models.MaxPool(window, stride):
            return call("eqx.nn.MaxPool2d", window, stride)
        case models.ReLU():
            return call("eqx.nn.Lambda", "jax.nn.relu")
        case models.Flatten():
            return call("eqx.nn.Lambda", "jnp.ravel")
        case models.Dense(features):
            return call("eqx.nn.Linear", inputs[0], features, key="key")
    raise unsupported("layer", named.layer, TITLE)


def loss(description: models.Loss) -> str:
    """Return the expression of the loss of `outputs` and `labels`."""
    match description:
        case models.SoftmaxCrossEntropy(label_smoothing=0):
            cross_entropy = "optax.softmax_cross_entropy_with_integer_labels"
            return f"{cross_entropy}(outputs, labels).mean()"
        case models.MeanSquaredError():
            return "optax.squared_error(outputs, labels).mean()"
    raise unsupported("loss", description, TITLE)


def optimizer(description: models.Optimizer) -> Call:
    """Return optax's rule."""
    match description:
        case models.SGD(rate, momentum, schedule=None, clip_norm=None):
            return call("optax.sgd", rate, momentum=unless(0, momentum))
        case models.Adam(rate, beta1, beta2, epsilon, schedule=None, clip_norm=None):
            return call("optax.adam", rate, b1=beta1, b2=beta2, eps=epsilon)
    raise unsupported("optimizer", description, TITLE)


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return the weights in the order of the model's leaves, which is the canonical one."""
    found = {}
    for named in training.model.named_layers():
        is_conv = isinstance(named.layer, models.Conv)
        for name in named.parameters:
            array = weights[name]
            found[name] = array[:, None, None] if is_conv and array.ndim == 1 else array
    return found


LOAD_WEIGHTS = (
    "weights = np.load(options.initial)",
    "leaves = [jnp.asarray(weights[name]) for name in weights]",
    "structure = jax.tree.structure(eqx.filter(model, eqx.is_inexact_array))",
    "model = eqx.combine(jax.tree.unflatten(structure, leaves), model)",
)
STEP = """
@eqx.filter_value_and_grad
def loss_and_gradients(model, inputs, labels):
    outputs = jax.vmap(model)(inputs)
    return {loss}


@eqx.filter_jit(donate="all-except-first")
def step(batch, model, state):
    loss, gradients = loss_and_gradients(model, *batch)
    trained = eqx.filter(model, eqx.is_inexact_array)
    updates, state = optimizer.update(gradients, state, trained)
    return eqx.apply_updates(model, updates), state, loss
"""
COUNT_RIGHT = """
@eqx.filter_jit
def count_right(model, inputs, labels):
    return (jax.vmap(model)(inputs).argmax(1) == labels).sum()
"""
EPOCH = (
    "losses = []",
    "for batch in prepared:",
    "    model, state, loss = step(batch, model, state)",
    "    losses.append(loss)",
    "jax.block_until_ready((model, state))",
    "losses = jax.device_get(losses)",
)
