"""Write the training of a model in JAX, with Flax NNX and optax, without importing them.

It makes the module that a row runs, and the programs that are this module with examples and a loop
around it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ... import models
from ...inputs import names
from ...inputs.names import IDIOMATIC, MALLOC, TF32
from ...models.model import Model, NamedLayer, Weights
from ...source.data import example_arrays, python_data
from ...source.layers import LayerSource
from ...source.part_programs import PartTraining, python_part_program
from ...source.statements import WIDTH, call, indented
from ...source.training_programs import (
    PythonProgram,
    Training,
    check_variant,
    cpus_note,
    environment_note,
    predicted,
    python_training_program,
)
from ...source.training_source import TrainingSource
from ...workload import MALLOC_VARIANT
from .network import Network
from .source import (
    BFLOAT16,
    FLOAT32,
    SCALE_BY_SUMS,
    Dtypes,
    imports,
    layer_source,
    loss_source,
    optimizer_source,
    schedule_source,
)

__all__ = ["example_arrays", "initial_arrays", "part_program", "training_program"]

SEED = 0
"""Seed of the dropout masks."""
SCAN = "scan"
VARIANTS = (IDIOMATIC, MALLOC, SCAN)


def training_source(
    model: Model,
    is_mixed: bool = False,
    one_call: bool = False,
    layers: Callable[[NamedLayer, Dtypes], LayerSource] = layer_source,
) -> TrainingSource[Network]:
    """Return the source code of a model's training.

    Its definitions are the classes of the model, with what they need, and `loss_fn`; its functions
    `make_optimizer`, `train_step` and, where an epoch is one call, `train_epoch`, which take a
    `state` that nnx.merge makes the model and the optimizer of by the global `graphdef`;
    `compute_gradients`, which takes the model by its `model_graphdef`, its parameters and its other
    variables; and `predict`, which takes the model's state, and finds `eval_graphdef`.

    is_mixed: in bfloat16, beside float32 weights. one_call: whether an epoch is one. layers: says
    how a layer is written.
    """
    dtypes = BFLOAT16 if is_mixed else FLOAT32
    network = Network(model.named_layers(), lambda named: layers(named, dtypes))
    outputs = "model(inputs).astype(jnp.float32)" if is_mixed else "model(inputs)"
    step = TRAIN_STEP.strip()
    steps = [step, TRAIN_EPOCH.strip()] if one_call else [f"{DONATING}\n{step}"]
    is_given = isinstance(model.loss, models.GivenGradient)
    definitions = [*network.definitions, *network.classes, _loss(model.loss, outputs)]
    functions = [
        *_optimizer(model.optimizer),
        *steps,
        GRADIENTS.format(**(OF_OUTPUTS if is_given else OF_LOSS)),
        PREDICT.format(outputs=outputs),
    ]
    return TrainingSource(
        network=network,
        imports=imports,
        definitions=[text.strip() for text in definitions],
        functions={text.partition("def ")[2].partition("(")[0]: text.strip() for text in functions},
    )


def _optimizer(optimizer: models.Optimizer) -> list[str]:
    """Return the function that makes the optimizer of a model, behind those that it needs."""
    definitions, schedule = schedule_source(optimizer)
    rule = optimizer_source(optimizer, "matrices")
    made = call("nnx.Optimizer", "model", rule, wrt="nnx.Param").after("return ", WIDTH - 4)
    function = ["def make_optimizer(model):", *indented([*schedule, made])]
    needed = [MATRICES] * ("mask=matrices" in str(rule))
    needed += [SCALE_BY_SUMS] * ("scale_by_sums" in str(rule))
    return [*definitions, *needed, "\n".join(function)]


def _loss(loss: models.Loss, outputs: str) -> str:
    """Return the function of the loss. Where there is none, its gradient is the labels, and it
    returns the outputs too: XLA leaves out what no result needs.
    """
    is_given = isinstance(loss, models.GivenGradient)
    body = ["return (outputs * labels).sum(), outputs"] if is_given else loss_source(loss)
    begin = ["inputs, labels = batch", f"outputs = {outputs}"]
    return "\n".join(["def loss_fn(model, batch):", *indented([*begin, *body])])


DONATING = "@jax.jit(donate_argnums=0)"
TRAIN_STEP = """
def train_step(state, batch):
    model, optimizer = nnx.merge(graphdef, state)
    loss, grads = nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    return nnx.state((model, optimizer)), loss
"""
TRAIN_EPOCH = f"""
{DONATING}
def train_epoch(state, batches):
    return jax.lax.scan(train_step, state, batches)
"""
GRADIENTS = """
@jax.jit
def compute_gradients(parameters, others, batch):
    model = nnx.merge(model_graphdef, parameters, others, copy=True)
    {found}, grads = nnx.value_and_grad(loss_fn{options})(model, batch)
    return grads, nnx.state(model, nnx.Not(nnx.Param)), {kept}
"""
"""A model is copied, since a variant calls this in a loop, and a pass changes it in place."""
OF_LOSS = {"found": "loss", "options": "", "kept": "loss"}
OF_OUTPUTS = {"found": "(_, outputs)", "options": ", has_aux=True", "kept": "outputs"}
PREDICT = """
@jax.jit
def predict(weights, inputs):
    model = nnx.merge(eval_graphdef, weights)
    return {outputs}
"""
MATRICES = '''
def matrices(parameters):
    """Return which parameters decay: neither biases nor those of norms."""
    return nnx.map_state(lambda path, p: path[-1] != "bias" and p.ndim > 1, parameters)
'''


def has_one_call(variant: str, model: Model) -> bool:
    """Return whether an epoch is one call: batches that are streamed are not there before it."""
    return variant == SCAN and model.data.augmentation is None


def training_program(training: Training) -> str:
    """Return the program that trains a model."""
    check_variant(training, VARIANTS, "jax", "crossbench/adapters/jax/{variant}.py")
    model, one_call = training.model, has_one_call(training.variant, training.model)
    written = training_source(model, training.compute == names.BFLOAT16, one_call)
    unused = ["compute_gradients", *["predict"] * (not model.has_accuracy)]
    definitions = _definitions(written, *unused)
    program = PythonProgram(
        title="JAX",
        imports=[line.replace("nnx", NNX) for line in imports("\n".join(definitions))],
        setup=setup(training),
        definitions=definitions,
        model=[
            "train, test = load_data()",
            *_prepared(training),
            "",
            f"model = Model(nnx.Rngs({SEED}))",
            *_load_weights(written.network),
            *SPLIT,
        ],
        epoch=_epoch(training),
        evaluation=[
            "nnx.update((model, optimizer), state)",
            "model.eval()",
            "eval_graphdef, weights = nnx.split(model)",
            "right = 0",
            "for inputs, labels in map(jax.device_put, batches(*test, TEST)):",
            f"    right += ({predicted(model, 'predict(weights, inputs)')} == labels).sum()",
        ],
        notes=_notes(training),
    )
    data = python_data(training, channels_last=True)
    return python_training_program(training, data, program)


def part_program(training: PartTraining) -> str:
    """Return the program that times a piece of work."""
    written, trains = training_source(training.model), training.trains
    made = [f"model = Model(nnx.Rngs({SEED}))"]
    if trains:
        definitions = _definitions(written, "compute_gradients", "predict")
        made += SPLIT
        call = ["state, loss = jax.block_until_ready(train_step(state, batch))"]
    else:
        definitions = [*written.definitions, written.functions["compute_gradients"]]
        made.append("model_graphdef, parameters, others = nnx.split(model, nnx.Param, ...)")
        call = [
            "results = compute_gradients(parameters, others, batch)",
            "grads, others, _ = jax.block_until_ready(results)",
        ]
    program = PythonProgram(
        title="JAX",
        imports=imports("\n".join(definitions)),
        setup=setup(training),
        definitions=definitions,
        model=made,
        epoch=call,
        notes=_notes(training),
    )
    placed = "batch = jax.device_put((inputs, labels))"
    version = "jax {jax.__version__}"
    return python_part_program(training, program, placed, version, channels_last=True)


def _definitions(written: TrainingSource[Network], *unused: str) -> list[str]:
    """Return the classes and functions of a training, but for those that are not used."""
    functions = (text for name, text in written.functions.items() if name not in unused)
    return [*written.definitions, *functions]


NNX = "nnx, traverse_util"
"""What the program of a whole model imports from Flax."""
SPLIT = ("optimizer = make_optimizer(model)", "graphdef, state = nnx.split((model, optimizer))")


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return canonical weights by their path in the program's model, with Flax's axes."""
    places = Network(training.model.named_layers()).places()
    return {place.path: place.to_framework(weights[name]) for name, place in places.items()}


def _notes(training: Training) -> list[str]:
    """Return what the program's docstring says of its environment."""
    notes = []
    if training.device == "cpu":
        notes.append(cpus_note("XLA", training.threads))
    if training.variant == MALLOC:
        notes.append(environment_note(MALLOC_VARIANT.environment))
    if training.variant == SCAN and training.is_augmented:
        notes.append("An epoch is not one call: its batches are made in the loop.")
    return notes


def setup(training: Training) -> list[str]:
    """Return the statement that chooses the CPU, or on a GPU, JAX' default, the precision."""
    if training.device == "cpu":
        return ['jax.config.update("jax_platforms", "cpu")']
    if training.compute == TF32:
        return ['jax.config.update("jax_default_matmul_precision", "tensorfloat32")']
    return ['jax.config.update("jax_default_matmul_precision", "highest")  # not TF32']


def _prepared(training: Training) -> list[str]:
    """Return the statements that bring the batches to the device."""
    if training.is_augmented:
        return []
    made = "batches(*train, BATCHES * BATCH_SIZE)"
    if has_one_call(training.variant, training.model):
        return [
            f"inputs, labels = zip(*{made})",
            "prepared = jax.device_put((np.stack(inputs), np.stack(labels)))",
            "jax.block_until_ready(prepared)",
        ]
    return [f"prepared = jax.device_put(list({made}))", "jax.block_until_ready(prepared)"]


def _load_weights(network: Network) -> list[str]:
    """Return the statements that load the weights; the places in a list of blocks are numbers."""
    loaded = 'traverse_util.unflatten_dict(weights, sep=".")'
    if network.calls:
        loaded = f"nnx.restore_int_paths({loaded})"
    return [
        "weights = jax.device_put(dict(np.load(options.initial)))",
        f"nnx.update(model, {loaded})",
    ]


def _epoch(training: Training) -> list[str]:
    if has_one_call(training.variant, training.model):
        return [
            "state, losses = train_epoch(state, prepared)",
            "losses = jax.device_get(losses)",
            "jax.block_until_ready(state)",
        ]
    made = "map(jax.device_put, augmented(*train, epoch))" if training.is_augmented else "prepared"
    return [
        "losses = []",
        f"for batch in {made}:",
        "    state, loss = train_step(state, batch)",
        "    losses.append(loss)",
        "losses = jax.device_get(losses)",
        "jax.block_until_ready(state)",
    ]
