"""Write the training of a model in Keras, without importing it.

It makes the module that a row runs, and the programs that are this module with examples and a loop
around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ... import models
from ...inputs.names import BFLOAT16
from ...models.model import Model, Weights
from ...source.data import example_arrays, python_data
from ...source.part_programs import PartTraining, python_part_program
from ...source.statements import call, indented, unsupported
from ...source.training_programs import (
    PythonProgram,
    Training,
    batches_of_epoch,
    cpus_note,
    predicted,
    prepared,
    python_training_program,
)
from ...source.training_source import TrainingSource
from ..jax import program as jax
from ..torch import program as torch
from .network import Network
from .parameters import arrays_by_path
from .source import (
    definitions,
    has_sparse_gradients,
    import_keras,
    imports,
    loss_source,
    optimizer_source,
)

__all__ = ["example_arrays", "initial_arrays", "part_program", "training_program"]

SEED = 0
"""Seed of the dropout masks."""
TITLES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
"""The backends, which are variants' names too, by their own name."""
IMPORTS = {"tensorflow": "import tensorflow as tf", "jax": "import jax", "torch": "import torch"}
CHANNELS_FIRST = "Flattens pictures with their channels first, as PyTorch does."


def training_source(
    model: Model, backend: str, jit_compile: bool, trains: bool = True
) -> TrainingSource[Network]:
    """Return the source code of a model's training; on TensorFlow with the function
    `compute_gradients` of a model and a batch.

    jit_compile: whether XLA compiles the step where Keras would not have it do so. trains: whether
    it is for more than the gradients.
    """
    network = Network(model, backend)
    made = [f"keras.utils.set_random_seed({SEED})", *network.lines]
    given = {"optimizer": "optimizer" if trains else None, "loss": "loss"}
    is_given = isinstance(model.loss, models.GivenGradient)
    loss = call("GivenGradient") if is_given else loss_source(model.loss)
    is_gated = any(
        isinstance(named.layer, models.GRU) and not named.layer.both_biases
        for named in model.all_layers()
    )
    if trains and is_gated and model.optimizer.clip_norm is not None:
        # the norm would have the gradient of a bias that stays 0
        raise unsupported("clipping beside a GRU", model.optimizer, "Keras")
    sparse, vectors = has_sparse_gradients(model, backend), _vectors(model)
    rule = optimizer_source(model.optimizer, vectors, sparse, backend) if trains else []
    compiled = [
        loss.assigned_to("loss"),
        *rule,
        str(call("model.compile", **given, jit_compile=jit_compile or None)),
    ]
    used = definitions("\n".join([*network.functions, *made, *compiled]))
    return TrainingSource(
        network=network,
        imports=imports,
        definitions=[*used, *network.functions],
        made=made,
        compiled=compiled,
        functions={"compute_gradients": GRADIENTS.strip()} if backend == "tensorflow" else {},
    )


GRADIENTS = """
@tf.function(jit_compile=model.jit_compile)
def compute_gradients(model, inputs, labels):
    with tf.GradientTape() as tape:
        outputs = model(inputs, training=True)
        loss = model.compute_loss(x=inputs, y=labels, y_pred=outputs)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    # an embedding's gradient is a sparse one
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients], outputs
"""


def training_program(training: Training) -> str:
    """Return the program that trains a model."""
    backend = backend_of(training.variant)
    written = training_source(training.model, backend, training.variant == "jit")
    own = [*written.definitions, _to_device(training, backend)]
    is_drawn_by_torch = backend == "torch" and training.has_dropout
    program = PythonProgram(
        title=f"Keras on {TITLES[backend]}",
        before_imports=_environment(training, backend),
        imports=["import keras", IMPORTS[backend], import_keras("\n".join([*own, *written.made]))],
        setup=_setup(training, backend),
        definitions=own,
        model=[
            *prepared(training),
            "",
            *written.made,
            *LOAD_WEIGHTS,
            *written.compiled,
            *[f"torch.manual_seed({SEED})  # of the dropout masks"] * is_drawn_by_torch,
        ],
        epoch=_epoch(training, backend),
        evaluation=_evaluation(training.model),
        notes=_notes(training, backend),
    )
    data = python_data(training, channels_last=True)
    return python_training_program(training, data, program)


def part_program(training: PartTraining) -> str:
    """Return the program that times a piece of work, on TensorFlow."""
    trains, backend = training.trains, backend_of(training.variant)
    written = training_source(training.model, backend, jit_compile=False, trains=trains)
    placed = "inputs, labels = ops.convert_to_tensor(inputs), ops.convert_to_tensor(labels)"
    call = "model.train_on_batch(" if trains else "compute_gradients(model, "
    program = PythonProgram(
        title=f"Keras on {TITLES[backend]}",
        before_imports=_environment(training, backend),
        imports=[
            "import keras",
            IMPORTS[backend],
            import_keras("\n".join([*written.definitions, *written.made, placed])),
        ],
        setup=_setup(training, backend),
        definitions=written.definitions,
        model=[*written.made, *written.compiled],
        functions=[] if trains else [written.functions["compute_gradients"]],
        epoch=[f"{call}inputs, labels)"],
    )
    version = "keras {keras.__version__}"
    return python_part_program(training, program, placed, version, channels_last=True)


def backend_of(variant: str) -> str:
    """Return the name of Keras' backend in a variant."""
    return variant if variant in TITLES else "tensorflow"


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return canonical weights by the paths that Keras gives the variables of the program."""
    places = Network(training.model, backend_of(training.variant)).places()
    arrays = arrays_by_path(places, weights)
    return {path: np.ascontiguousarray(array) for path, array in arrays.items()}


LOAD_WEIGHTS = (
    "weights = np.load(options.initial)",
    "model.set_weights([weights[variable.path] for variable in model.weights])",
)


def _environment(training: Training, backend: str) -> list[str]:
    """Return the statements that must come before Keras and its backend are imported."""
    lines = ["import os", "", f'os.environ["KERAS_BACKEND"] = "{backend}"']
    match backend:
        case "tensorflow":
            lines.append('os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # no warnings')
            if training.device == "cpu":  # Keras compiles by XLA where TensorFlow sees a GPU
                lines.append('os.environ["CUDA_VISIBLE_DEVICES"] = ""')
        case "torch":
            device = "cuda" if training.device == "gpu" else "cpu"
            lines.append(f'os.environ["KERAS_TORCH_DEVICE"] = "{device}"')
    return lines


def _setup(training: Training, backend: str) -> list[str]:
    """Return the statements that set the backend's device, threads and precision."""
    is_mixed = training.compute == BFLOAT16
    return ['keras.config.set_dtype_policy("mixed_bfloat16")'] * is_mixed + SETUP[backend](training)


def _setup_tensorflow(training: Training) -> list[str]:
    lines = [
        f"tf.config.threading.set_{kind}_op_parallelism_threads({training.threads})"
        for kind in ("intra", "inter")
    ]
    if training.device == "gpu":
        lines.append("tf.config.experimental.enable_tensor_float_32_execution(False)")
    return lines


SETUP: Mapping[str, Callable[[Training], list[str]]] = {
    "tensorflow": _setup_tensorflow,
    "jax": jax.setup,
    "torch": torch.setup,
}


def _to_device(training: Training, backend: str) -> str:
    """Return the function that makes tensors of a batch."""
    is_strided = backend == "torch" and len(training.model.input_shape) == 3
    inputs = "ops.convert_to_tensor(inputs)" + ".contiguous()" * is_strided
    lines = ["inputs, labels = batch", f"return {inputs}, ops.convert_to_tensor(labels)"]
    return "\n".join(["def to_device(batch):", *indented(lines)])


def _vectors(model: Model) -> str:
    """Return the expression of the variables without weight decay."""
    is_vector = "len(v.shape) < 2"
    kinds = {type(named.layer) for named in model.all_layers()}
    if kinds & {models.MultiHeadAttention, models.GRU}:
        is_vector += ' or v.name == "bias"'  # it has an axis for the heads, or for cuDNN's formula
    if models.PReLU in kinds:
        is_vector += ' or v.name == "alpha"'  # it has an axis for each of an example
    return f"[v for v in model.trainable_variables if {is_vector}]"


def _epoch(training: Training, backend: str) -> list[str]:
    waits = backend == "tensorflow" and training.device == "gpu"
    return [
        "losses = []",
        f"for inputs, labels in {batches_of_epoch(training)}:",
        "    losses.append(model.train_on_batch(inputs, labels))",
        *(["tf.test.experimental.sync_devices()  # the last update has ended"] * waits),
    ]


def _evaluation(model: Model) -> list[str]:
    """Return the statements that find the share of the test examples that are right."""
    return [
        "right = 0",
        "for inputs, labels in batches(*test, TEST):",
        "    outputs = model.predict_on_batch(inputs)",
        f"    right += ({predicted(model, 'outputs')} == labels).sum()",
    ]


def _notes(training: Training, backend: str) -> list[str]:
    """Return the sentences on what is unusual in the program."""
    notes = []
    if backend == "jax" and training.device == "cpu":
        notes.append(cpus_note("XLA", training.threads))
    flattens = any(
        isinstance(named.layer, models.Flatten) and len(named.input_shape) == 3
        for named in training.model.all_layers()
    )
    return [*notes, CHANNELS_FIRST] if flattens else notes
