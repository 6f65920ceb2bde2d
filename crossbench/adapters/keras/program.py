"""Write the program in Keras that trains a model, and its initial weights. Imports no Keras."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ... import models
from ...models.model import Model, NamedLayer, Weights
from ...source.data import example_arrays, python_data
from ...source.layers import LayerSource
from ...source.statements import WIDTH, Call, bracketed, call, code, indented
from ...source.training_programs import (
    Block,
    PythonProgram,
    Training,
    batches_of_epoch,
    cpus_note,
    grouped,
    predicted,
    prepared,
    python_training_program,
)
from .source import (
    SWAPPED,
    channels_last,
    definitions,
    has_sparse_gradients,
    import_keras,
    layer_source,
    loss_source,
    optimizer_source,
    parameter_source,
)
from .workload import SEED

__all__ = ["example_arrays", "initial_arrays", "training_program"]

TITLES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
"""The backends, which are variants' names too, by their own name."""
IMPORTS = {"tensorflow": "import tensorflow as tf", "jax": "import jax", "torch": "import torch"}
CHANNELS_FIRST = "Flattens pictures with their channels first, as PyTorch does."


def training_program(training: Training) -> str:
    """Return the program that trains a model.

    Raises NotImplementedError for a variant or a part that it cannot have.
    """
    backend = backend_of(training.variant)
    chain = Chain(training.model, backend)
    made = [*chain.lines, *LOAD_WEIGHTS, *_compiled(training, backend)]
    used = definitions("\n".join([*made, *chain.functions]))
    own = [*used, *chain.functions, _to_device(training, backend)]
    setup = [*_setup(training, backend), *(EXACT if any("exact(" in line for line in made) else ())]
    keras = import_keras("\n".join([*own, *made]))
    program = PythonProgram(
        title=f"Keras on {TITLES[backend]}",
        before_imports=_environment(training, backend),
        imports=["import keras", IMPORTS[backend], *_float64_import(backend), keras],
        setup=setup,
        definitions=own,
        model=[
            *prepared(training),
            "",
            *made,
        ],
        epoch=_epoch(training, backend),
        evaluation=_evaluation(training.model),
        notes=_notes(training, backend),
    )
    return python_training_program(training, python_data(training, channels_last=True), program)


def backend_of(variant: str) -> str:
    """Return the name of Keras' backend in a variant."""
    return variant if variant in TITLES else "tensorflow"


class Chain:
    """Writes a model: a keras.Sequential, or where layers branch or are no objects, by the
    functional API.

    lines: the statements that make the `model`. functions: those that apply equal blocks of it.
    """

    def __init__(self, model: Model, backend: str) -> None:
        self.sources = dict(layer_sources(model, backend))
        self.is_tied = _is_tied(model)
        self.functions: list[str] = []
        layers = list(model.named_layers())
        shape: list[str] = [code(channels_last(model.input_shape))]
        given = [*shape, 'dtype="int32"'] if model.vocabulary else shape
        inputs = Call("keras.Input", tuple(given))
        if is_sequential(model, backend):
            sources = [self.sources[named.name] for named in layers]
            calls = [inputs, *(c for source in sources for c in (*source.before, source.call))]
            items = [bracketed(f"{c.function}(", c.arguments, "),", WIDTH - 8) for c in calls]
            items = indented(["[", *indented(items), "]"])
            self.lines = ["model = keras.Sequential(", *items, ")"]
        else:
            self.lines = [inputs.assigned_to("inputs"), *self._applied(layers, "inputs", "x")]
            outputs = self.lines[-1].removeprefix("x = ")
            self.lines[-1:] = [f"outputs = {outputs}", "model = keras.Model(inputs, outputs)"]

    def _applied(
        self, layers: Sequence[NamedLayer], x: str, to: str, room: int = WIDTH
    ) -> list[str]:
        """Return the statements that apply layers to the variable x, with the result in another."""
        lines = []
        for part in self._parts(layers):
            if isinstance(part, Block):
                lines += [] if x == to else [f"{to} = {x}"]
                lines.append(f"for _ in range({part.count}):")
                lines.append(f"    {to} = {self._block(part)}({to})")
            elif isinstance(part.layer, models.Residual):
                lines += self._residual(part, x, to, room)
            else:
                lines += self._layer(part, x, to, room)
            x = to
        return lines

    def _parts(self, layers: Sequence[NamedLayer]) -> Iterator[NamedLayer | Block]:
        """Yield layers and blocks; a block with dropouts as its layers, each with its own seed."""
        for part in grouped(layers):
            if isinstance(part, Block) and any(map(_is_dropout, _flat(part.layers))):
                yield from (named for group in (part.layers, *part.repeated) for named in group)
            else:
                yield part

    def _layer(self, named: NamedLayer, x: str, to: str, room: int) -> list[str]:
        source, lines = self.sources[named.name], []
        for before in source.before:
            lines.append(f"{to} = {before}({x})")
            x = to
        if isinstance(named.layer, models.Unembedding):
            return [*lines, f"{to} = embedding({x}, reverse=True)"]
        if self.is_tied and isinstance(named.layer, models.Embedding):
            return [*lines, source.call.assigned_to("embedding"), f"{to} = embedding({x})"]
        if source.build is None:
            return [*lines, f"{to} = {source.output.format(x=x)}"]
        _, _, applied = source.output.format(layer="()", x=x).partition("()")
        start = f"{to} = {source.build.function}("
        return [*lines, bracketed(start, source.build.arguments, f"){applied}", room)]

    def _residual(self, named: NamedLayer, x: str, to: str, room: int) -> list[str]:
        """Return the statements of two branches, in variables that no branch around them has."""
        names = ("y", "shortcut") if to == "x" else (f"{to}_y", f"{to}_shortcut")
        body, shortcut = (
            self._applied(branch, x, name, room)
            for branch, name in zip((named.body, named.shortcut), names, strict=True)
        )
        ends = [names[0] if body else x, names[1] if shortcut else x]
        return [*body, *shortcut, f"{to} = layers.Add()([{', '.join(ends)}])"]

    def _block(self, block: Block) -> str:
        """Write the function that applies a block, and return its name."""
        number = len(self.functions) + 1
        name = f"block{number}" if number > 1 else "block"
        self.functions.append("")
        *body, last = self._applied(block.layers, "x", "x", WIDTH - 4)
        body.append(f"return {last.removeprefix('x = ')}")
        self.functions[number - 1] = "\n".join([f"def {name}(x):", *indented(body)])
        return name


def is_sequential(model: Model, backend: str) -> bool:
    """Return whether the model is written as a keras.Sequential."""
    sources = [source for _, source in layer_sources(model, backend)]
    has_branches = any(isinstance(named.layer, models.Residual) for named in model.all_layers())
    return not has_branches and all(s.build and s.output == LayerSource.output for s in sources)


def layer_sources(model: Model, backend: str) -> Iterator[tuple[str, LayerSource]]:
    """Yield how each layer of a model is written, by its canonical name."""
    seeds = _seeds()
    for named in model.all_layers():
        if isinstance(named.layer, models.Residual):
            continue
        source = layer_source(named, backend)
        match named.layer:
            case models.Dropout(rate) if rate:
                seed = next(seeds)
                if backend != "torch":
                    source = replace(source, build=call("layers.Dropout", rate, seed=seed))
            case models.LSTM(bidirectional=both) | models.GRU(bidirectional=both):
                for _ in range(3 if both else 1):  # Bidirectional copies its layer
                    next(seeds)
            case models.Embedding(vocabulary, width) if _is_tied(model):
                build = call("layers.ReversibleEmbedding", vocabulary, width)
                source = replace(source, build=build)
        yield named.name, source


def _seeds() -> Iterator[int]:
    """Yield the seeds that Keras' layers draw for themselves after a set_random_seed."""
    drawn = random.Random(SEED)
    while True:
        yield drawn.randint(1, 1_000_000_000)


def _is_tied(model: Model) -> bool:
    return any(isinstance(named.layer, models.Unembedding) for named in model.all_layers())


def _is_dropout(named: NamedLayer) -> bool:
    return isinstance(named.layer, models.Dropout)


def _flat(layers: Iterable[NamedLayer]) -> Iterator[NamedLayer]:
    """Yield layers, each followed by its inner layers."""
    for named in layers:
        yield named
        yield from _flat((*named.body, *named.shortcut))


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return canonical weights by the paths that Keras gives the variables of the program."""
    model, backend = training.model, backend_of(training.variant)
    start = "sequential/" if is_sequential(model, backend) else ""
    sources, names, found = dict(layer_sources(model, backend)), Counter[str](), {}
    for named in model.all_layers():
        if not named.parameters:
            continue
        build = sources[named.name].call
        name = _next_name(build.function, names)
        inner = build.arguments[0] if build.arguments else None
        cell = _next_name(inner.function, names) if isinstance(inner, Call) else name
        for full_name in named.parameters:
            source = parameter_source(named, full_name.partition(".")[2], "array")
            path = _variable_path(source.path, cell)
            found[f"{start}{name}/{path}"] = _value(source.value, weights[full_name])
    return found


def _next_name(function: str, names: Counter[str]) -> str:
    """Return the name that Keras gives a layer: that of its class, with a number after the first.

    names: how often each was given.
    """
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", function.removeprefix("layers."))
    name = re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()
    names[name] += 1
    return name if names[name] == 1 else f"{name}_{names[name] - 1}"


def _variable_path(attributes: str, layer: str) -> str:
    """Return the path of a variable in its layer. layer: the name of a recurrent one."""
    path = attributes.replace("output_dense", "attention_output").replace("_dense.", "/")
    path = path.replace("cell.", f"{re.sub('_[0-9]+$', '', layer)}_cell/")
    return path.replace("_layer.", f"_{layer}/").replace(".", "/")


def _value(expression: str, array: np.ndarray) -> np.ndarray:
    """Return the value of an expression of parameter_source."""
    names = {"np": np, "array": array}
    exec(SWAPPED, names)
    return np.ascontiguousarray(eval(expression, names))


LOAD_WEIGHTS = (
    "weights = np.load(options.initial)",
    "model.set_weights([weights[variable.path] for variable in model.weights])",
)
EXACT = (
    "# TensorFlow makes float32 of a Python float",
    'exact = np.float64 if options.dtype == "float64" else float',
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


def _float64_import(backend: str) -> list[str]:
    return [] if backend == "tensorflow" else ["from keras.src.backend.common import dtypes"]


def _setup(training: Training, backend: str) -> list[str]:
    """Return the statements that set the backend's device, threads and precision."""
    on_gpu, threads = training.device == "gpu", training.threads
    lines = ["keras.config.set_floatx(options.dtype)"]
    if backend != "tensorflow":
        lines += FLOAT64_RESULTS
    match backend:
        case "tensorflow":
            lines += [
                f"tf.config.threading.set_intra_op_parallelism_threads({threads})",
                f"tf.config.threading.set_inter_op_parallelism_threads({threads})",
            ]
            if on_gpu:
                lines.append("tf.config.experimental.enable_tensor_float_32_execution(False)")
        case "jax":
            platform = "cuda" if on_gpu else "cpu"
            lines += [
                f'jax.config.update("jax_platforms", "{platform}")',
                'jax.config.update("jax_enable_x64", options.dtype == "float64")',
                'jax.config.update("jax_default_matmul_precision", "highest")',
            ]
        case "torch":
            lines.append(f"torch.set_num_threads({threads})")
            if on_gpu:
                lines.append("torch.backends.cudnn.allow_tf32 = False")
                lines.append("torch.backends.cudnn.benchmark = True")
    return lines


FLOAT64_RESULTS = (
    "# else Keras makes results of float64 float32, but on TensorFlow",
    'dtypes.BIT64_TO_BIT32_DTYPE["float64"] = options.dtype',
)


def _to_device(training: Training, backend: str) -> str:
    """Return the function that makes tensors of a batch."""
    is_strided = backend == "torch" and len(training.model.input_shape) == 3
    inputs = "ops.convert_to_tensor(inputs)" + ".contiguous()" * is_strided
    lines = ["inputs, labels = batch", f"return {inputs}, ops.convert_to_tensor(labels)"]
    return "\n".join(["def to_device(batch):", *indented(lines)])


def _compiled(training: Training, backend: str) -> list[str]:
    """Return the statements that compile the model, with its loss and its optimizer."""
    model = training.model
    on_tensorflow = backend == "tensorflow"
    number = _exact if on_tensorflow else code
    has_sparse = has_sparse_gradients(model, backend)
    jit = {"jit_compile": True} if training.variant == "jit" else {}
    return [
        loss_source(model.loss).assigned_to("loss"),
        *optimizer_source(model.optimizer, _vectors(model), number, has_sparse),
        str(call("model.compile", optimizer="optimizer", loss="loss", **jit)),
        *([f"torch.manual_seed({SEED})  # of the dropout masks"] * _draws(training, backend)),
    ]


def _vectors(model: Model) -> str:
    """Return the expression of the variables without weight decay."""
    is_vector = "len(v.shape) < 2"
    layers = (named.layer for named in model.all_layers())
    if any(isinstance(layer, models.MultiHeadAttention) and layer.bias for layer in layers):
        is_vector += ' or v.name == "bias"'  # an attention's has an axis for the heads
    return f"[v for v in model.trainable_variables if {is_vector}]"


def _exact(number: float) -> str:
    return f"exact({code(number)})"


def _draws(training: Training, backend: str) -> bool:
    """Return whether PyTorch's generator draws the dropout masks."""
    return backend == "torch" and training.has_dropout


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
