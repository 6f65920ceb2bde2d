"""Write the program in JAX, with Flax NNX and optax, that trains a model, and its initial weights.
Imports none of them.
"""

from __future__ import annotations

import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ... import models
from ...inputs.names import IDIOMATIC, MALLOC
from ...models.model import NamedLayer, Weights
from ...source.data import example_arrays, python_data
from ...source.layers import MAX_NESTED
from ...source.statements import WIDTH, Call, call, indented
from ...source.training_programs import (
    Block,
    PythonProgram,
    Training,
    check_variant,
    cpus_note,
    environment_note,
    grouped,
    predicted,
    python_training_program,
)
from ...workload import MALLOC_VARIANT
from .source import (
    last_output,
    layer_source,
    loss_source,
    optimizer_source,
    schedule_source,
    to_flax,
)
from .workload import SEED

__all__ = ["example_arrays", "initial_arrays", "training_program"]

SCAN = "scan"
VARIANTS = (IDIOMATIC, MALLOC, SCAN)


def training_program(training: Training) -> str:
    """Return the program that trains a model.

    Raises NotImplementedError for a variant or a part that it cannot have.
    """
    check_variant(training, VARIANTS, "jax", "crossbench/adapters/jax/{variant}.py")
    network = Network(list(training.model.named_layers()))
    factor, schedule = schedule_source(training.model.optimizer)
    rule = optimizer_source(training.model.optimizer, "matrices")
    program = PythonProgram(
        title="JAX",
        imports=[
            "import jax",
            "import jax.numpy as jnp",
            "import optax",
            "from flax import nnx, traverse_util",
        ],
        setup=_setup(training),
        definitions=[
            *network.definitions,
            *network.classes,
            *factor,
            *[MATRICES] * ("mask=matrices" in str(rule)),
        ],
        model=[
            "train, test = load_data()",
            *_prepared(training),
            "",
            f"model = Model(nnx.Rngs({SEED}))",
            *_load_weights(network),
            *schedule,
            call("nnx.Optimizer", "model", rule, wrt="nnx.Param").assigned_to("optimizer"),
            "graphdef, state = nnx.split((model, optimizer))",
        ],
        functions=_functions(training),
        epoch=_epoch(training),
        evaluation=EVALUATION,
        notes=_notes(training),
    )
    data = python_data(training, channels_last=True)
    return python_training_program(training, data, program)


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return canonical weights by their path in the program's model, with Flax's axes."""
    found = {}
    for path, named in layer_paths(list(training.model.named_layers())):
        for name, source in layer_source(named).parameters.items():
            array = weights[f"{named.name}.{name}"]
            methods = to_flax(named, name, array.shape)
            found[f"{path}.{source.path}"] = eval(f"array{methods}", {"array": array})
        if isinstance(named.layer, models.BatchNorm):
            found[f"{path}.mean"] = weights[f"{named.name}.running_mean"]
            found[f"{path}.var"] = weights[f"{named.name}.running_var"]
    return found


class Network:
    """Writes a model as nnx.Module classes: `Model`, and one of each kind of block that repeats.

    classes: their source code, in order. calls: those that make a block, by its `key`. definitions:
    what layers need.
    """

    def __init__(self, layers: Sequence[NamedLayer]) -> None:
        self.definitions: dict[str, None] = {}
        self.calls: dict[str, str] = {}
        parts = list(grouped(layers))
        bodies = self._of_blocks([part for part in parts if isinstance(part, Block)])
        self.classes = []
        for number, (body, calls) in enumerate(bodies.items(), start=1):
            name = "Block" if len(bodies) == 1 else f"Block{number}"
            self.classes.append(f"class {name}(nnx.Module):\n{body}")
            self.calls |= {block: f"{name}({given})" for block, given in calls.items()}
        self.classes.append(f"class Model(nnx.Module):\n{self._body(parts)}")

    def _of_blocks(self, blocks: Sequence[Block]) -> dict[str, dict[str, str]]:
        """Return the bodies of the blocks' classes, one for those that differ in their width alone,
        each with the arguments that make a block, by its `key`.
        """
        templates = Counter(self._body(block.layers, width(block)) for block in blocks)
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for block in blocks:
            body, given = self._body(block.layers, width(block)), f"{width(block)}, rngs"
            if templates[body] == 1:
                body, given = self._body(block.layers), "rngs"
            found[body][key(block)] = given
        return found

    def _body(self, parts: Sequence[NamedLayer | Block], features: int | None = None) -> str:
        """Return a class without its first line. features: a number that is an argument."""
        names = attributes(parts)
        made = [line for part in flattened(parts) for line in self._made(part, names, features)]
        forward = Forward(names)
        output = forward.chain(parts)
        lines = [
            f"def __init__(self, {'features: int, ' if features else ''}rngs: nnx.Rngs):",
            *indented(made),
            "",
            "def __call__(self, x: jax.Array) -> jax.Array:",
            *indented([*forward.lines, f"return {output}"]),
        ]
        return "\n".join(indented(lines))

    def _made(self, part: NamedLayer | Block, names: Attributes, features: int | None) -> list[str]:
        """Return the statement that makes a layer, or equal blocks, in a list."""
        if key(part) not in names:
            return []
        attribute = f"self.{names[key(part)]} = "
        if isinstance(part, Block):
            made = f"[{self.calls[key(part)]} for _ in range({part.count})]"
            return [f"{attribute}nnx.List({made})"]
        source = layer_source(part, loaded=True)
        self.definitions |= dict.fromkeys(source.definitions)
        given = ("features" if a == str(features) else a for a in source.call.arguments)
        return [Call(source.call.function, tuple(given)).after(attribute, WIDTH - 8)]


class Forward:
    """Writes the statements that apply layers to x, one for each layer with weights.

    names: the layers' attributes.
    """

    def __init__(self, names: Attributes) -> None:
        self.names = names
        self.lines: list[str] = []

    def chain(self, parts: Iterable[NamedLayer | Block], depth: int = 0, x: str = "x") -> str:
        """Return the expression of the output of layers, behind its statements.

        depth: of the residual that the layers are in. x: their input.
        """
        for part in parts:
            if isinstance(part, Block):
                x = self._assigned(x, depth)
                self.lines += [
                    f"for block in self.{self.names[key(part)]}:",
                    f"    {x} = block({x})",
                ]
            elif isinstance(part.layer, models.Residual):
                x = self._sum(part, depth, self._assigned(x, depth))
            else:
                x = self._applied(part, depth, x)
        return x

    def _sum(self, residual: NamedLayer, depth: int, x: str) -> str:
        body = self.chain(residual.body, depth + 1, x)
        if residual.shortcut:
            body = self._assigned(body, depth + 1)
        return f"{self.chain(residual.shortcut, depth, x)} + {body}"

    def _applied(self, named: NamedLayer, depth: int, x: str) -> str:
        is_tied = isinstance(named.layer, models.Unembedding)
        attribute = EMBEDDING if is_tied else self.names.get(named.name)
        if isinstance(named.layer, models.Recurrent) and not named.layer.bidirectional:
            last = last_output(named, VARIABLES[depth])
            self.lines.append(f"{last} = self.{attribute}({self._assigned(x, depth)})")
            return VARIABLES[depth]
        output = layer_source(named).output.replace("{layer}", f"self.{attribute}")
        begins = named.parameters and not isinstance(named.layer, NORMS)
        is_long = output.count("{x}") > 1 or len(output) + len(x) > MAX_NESTED
        if begins or is_long or (" + " in x and output.startswith("{x}")):
            x = self._assigned(x, depth)
        return output.format(x=x)

    def _assigned(self, expression: str, depth: int) -> str:
        """Return the name of a variable that has the value, which may be one already."""
        variable = VARIABLES[depth]
        if expression in VARIABLES:
            return expression
        self.lines.append(f"{variable} = {expression}")
        return variable


VARIABLES = ("x", "y", "z", "u", "v", "w")
"""Variables of a layer's output by the number of residuals that it is in."""
NORMS = models.BatchNorm | models.LayerNorm | models.RMSNorm
EMBEDDING = "embedding"
KINDS = {
    "batchnorm": "batch_norm",
    "classtoken": "class_token",
    "dense": "linear",
    "layernorm": "layer_norm",
    "multiheadattention": "attention",
    "positionembedding": "positions",
    "rmsnorm": "rms_norm",
}
"""What Flax's users call layers, by the name of their kind in a description, where it differs."""
Attributes = Mapping[str, str]
"""Names of the attributes of a class, by `key`."""


def attributes(parts: Sequence[NamedLayer | Block]) -> Attributes:
    """Return the names of what a class of these layers holds, numbered where a kind repeats."""
    kinds = {key(part): kind(part) for part in flattened(parts) if is_held(part)}
    counts, found = Counter(kinds.values()), {}
    used = Counter[str]()
    for name, of_kind in kinds.items():
        used[of_kind] += 1
        found[name] = of_kind if counts[of_kind] == 1 else f"{of_kind}{used[of_kind]}"
    return found


def kind(part: NamedLayer | Block) -> str:
    """Return the name of an attribute without its number."""
    if isinstance(part, Block):
        return "blocks"
    name = part.name.rstrip(string.digits)
    return KINDS.get(name, name)


def is_held(part: NamedLayer | Block) -> bool:
    """Return whether a class holds an object for this; an Unembedding is its embedding's."""
    if isinstance(part, Block):
        return True
    is_tied = isinstance(part.layer, models.Unembedding)
    return not is_tied and layer_source(part).build is not None


def key(part: NamedLayer | Block) -> str:
    """Return the unique name of a layer, or that of the first one in a block."""
    return part.layers[0].name if isinstance(part, Block) else part.name


def width(block: Block) -> int:
    """Return the number of features of a block's output."""
    shape = block.layers[0].output_shape
    return shape[0 if len(shape) == 3 else -1]


def flattened(parts: Iterable[NamedLayer | Block]) -> Iterator[NamedLayer | Block]:
    """Yield layers in order, those of a residual's branches in its place."""
    for part in parts:
        if isinstance(part, NamedLayer) and isinstance(part.layer, models.Residual):
            yield from flattened([*part.body, *part.shortcut])
        else:
            yield part


def layer_paths(layers: Sequence[NamedLayer]) -> Iterator[tuple[str, NamedLayer]]:
    """Yield the path in the program's model of each layer that it holds, with the layer."""
    parts = list(grouped(layers))
    names = attributes(parts)
    yield from _held(parts)
    for block in parts:
        if isinstance(block, Block):
            for number, group in enumerate([block.layers, *block.repeated]):
                yield from _held(group, f"{names[key(block)]}.{number}.")


def _held(parts: Sequence[NamedLayer | Block], start: str = "") -> Iterator[tuple[str, NamedLayer]]:
    """Yield the path of each layer that a class holds itself, with the layer."""
    names = attributes(parts)
    for part in flattened(parts):
        if isinstance(part, NamedLayer) and part.name in names:
            yield f"{start}{names[part.name]}", part


def _notes(training: Training) -> list[str]:
    """Return what the program's docstring says of its environment and of its results."""
    layers, notes = training.model.all_layers(), []
    if training.device == "cpu":
        notes.append(cpus_note("XLA", training.threads))
    if training.variant == MALLOC:
        notes.append(environment_note(MALLOC_VARIANT.environment))
    if training.variant == SCAN and training.is_augmented:
        notes.append("An epoch is not one call: its batches are made in the loop.")
    if any(isinstance(named.layer, models.BatchNorm) for named in layers):
        notes.append("Flax divides the running variance of a batch norm by n, not by n - 1.")
    return notes


def _setup(training: Training) -> list[str]:
    is_cpu = training.device == "cpu"
    return [
        'jax.config.update("jax_platforms", "cpu")' if is_cpu else FLOAT32_ALONE,
        'jax.config.update("jax_enable_x64", options.dtype == "float64")',
    ]


FLOAT32_ALONE = 'jax.config.update("jax_default_matmul_precision", "highest")  # not TF32'
MATRICES = '''
def matrices(parameters):
    """Return which parameters decay: neither biases nor those of norms."""
    return nnx.map_state(lambda path, p: path[-1] != "bias" and p.ndim > 1, parameters)
'''


def _scans(training: Training) -> bool:
    """Return whether an epoch is one call: batches that are streamed are not there before it."""
    return training.variant == SCAN and not training.is_augmented


def _prepared(training: Training) -> list[str]:
    """Return the statements that bring the batches to the device."""
    if training.is_augmented:
        return []
    made = "batches(*train, BATCHES * BATCH_SIZE)"
    if _scans(training):
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
        "weights = np.load(options.initial)",
        "weights = {name: jnp.asarray(weights[name], options.dtype) for name in weights}",
        f"nnx.update(model, {loaded})",
    ]


def _functions(training: Training) -> list[str]:
    """Return the functions of the loss, of a step and, for the scan, of an epoch."""
    loss = [
        "def loss_fn(model, batch):",
        *indented(["inputs, labels = batch", "outputs = model(inputs)"]),
        *indented(loss_source(training.model.loss)),
    ]
    functions = ["\n".join(loss)]
    if _scans(training):
        functions += [TRAIN_STEP.strip(), TRAIN_EPOCH.strip()]
    else:
        functions.append(f"{DONATING}\n{TRAIN_STEP.strip()}")
    if training.model.has_accuracy:
        right = predicted(training.model, "outputs")
        functions.append(COUNT_RIGHT.format(predicted=right).strip())
    return functions


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
COUNT_RIGHT = """
@nnx.jit
def count_right(model, inputs, labels):
    outputs = model(inputs)
    return ({predicted} == labels).sum()
"""


def _epoch(training: Training) -> list[str]:
    if _scans(training):
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


EVALUATION = (
    "nnx.update((model, optimizer), state)",
    "model.eval()",
    "right = 0",
    "for inputs, labels in map(jax.device_put, batches(*test, TEST)):",
    "    right += count_right(model, inputs, labels)",
)
