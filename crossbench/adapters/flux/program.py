"""Write the program in Flux.jl that trains a model, and its initial weights. Needs no Julia."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ... import models
from ...inputs.names import IDIOMATIC, MALLOC
from ...models.model import NamedLayer, Weights
from ...source.statements import Call, indented, unsupported
from ...source.training_programs import (
    EPOCHS,
    SHOWN,
    Block,
    Training,
    check_variant,
    docstring,
    grouped,
)
from ...workload import MALLOC_VARIANT
from .data import JuliaData, beside, example_arrays, julia_data
from .source import (
    LINE,
    activation_source,
    code,
    is_flipped,
    is_transposed,
    layer_source,
    loss_source,
    optimizer_source,
    parameters,
    schedule_source,
)
from .workload import convolves

__all__ = ["example_arrays", "initial_arrays", "training_program"]

VARIANTS = (IDIOMATIC, MALLOC)
MAX_TUPLE_LAYERS = 24
"""Layers that a Chain holds in a tuple at most, as the row's: Julia compiles a tuple as a whole."""
WITH_ACTIVATION = (models.Conv, models.Dense, models.BatchNorm)
"""Layers that apply an activation themselves."""


def training_program(training: Training) -> str:
    """Return the program that trains a model.

    Raises NotImplementedError for a variant or a part that it cannot have.
    """
    check_variant(training, VARIANTS, "flux", "julia/src/{variant}.jl")
    data, chain = julia_data(training), Chain(training)
    model = chain.statements(list(training.model.named_layers()))
    train = "\n".join(_train_epoch(training))
    own = [*chain.definitions, *chain.functions, *_rate_and_clip(training)]
    evaluation = _evaluation(training, data)
    blocks = [
        _heading(training, "\n".join([*own, *model])),
        _imports(training, "\n".join([*own, *model, *evaluation])),
        _sizes(training),
        OPTION.strip(),
        _constants(training, data.path),
        "\n".join([_blas_threads(training), *_gpu(training)]),
        *(text.strip() for text in [*own, *data.functions, train]),
        "\n".join([*data.train, *_batches(training)]),
        "\n".join([*model, *_initial_state(training)]),
        "\n".join(_epochs(training, data)),
        "\n".join(evaluation),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


@dataclass
class Chain:
    """Writes a Chain of layers, and collects what it needs.

    definitions: structs and functions of layers. functions: those that make equal blocks.
    """

    training: Training
    definitions: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)

    def statements(self, layers: Sequence[NamedLayer]) -> list[str]:
        """Return the statements that make the `model`."""
        items = self._items(layers)
        lines = []
        if isinstance(layers[-1].layer, models.Unembedding):
            lines.append(written(f"{TIED} = ", items[0]))
            items[0] = TIED
        if sum(1 for _ in fused(layers)) <= MAX_TUPLE_LAYERS:
            return [*lines, written("model = ", Call("Chain", tuple(items)))]
        broken = indented(written("", item, ",", LINE - 4) for item in items)
        return [*lines, "\n".join(["layers = [", *broken, "]"]), "model = Chain(layers)"]

    def _items(self, layers: Sequence[NamedLayer]) -> list[str | Call]:
        """Return the arguments of a Chain."""
        activations = {named.name: name for named, *applied in fused(layers) for name in applied}
        kept = [named for named, *_ in fused(layers)]
        items: list[str | Call] = []
        for part in grouped(kept, activations):
            if isinstance(part, Block):
                items.append(f"[{self._block(part, activations)}() for _ = 1:{part.count}]...")
            else:
                items += self._layer(part, activations)
        return items

    def _layer(self, named: NamedLayer, activations: dict[str, str]) -> list[str | Call]:
        """Return the items of a layer: what holds its parameters, and a function of the output."""
        if isinstance(named.layer, models.Residual):
            return [self._residual(named)]
        if isinstance(named.layer, models.Unembedding):
            self._define(layer_source(named).definitions)
            return [f"Unembedding({TIED}.weight)"]
        applied = [activations[named.name]] if named.name in activations else []
        source = layer_source(named, *applied)
        self._define(source.definitions)
        items: list[str | Call] = []
        output = source.output
        if source.build:
            items.append(self._seeded(named, source.build))
            output = output.replace("{layer}({x})", "{x}")
        if output != "{x}":
            items.append(_function(output))
        return items

    def _residual(self, named: NamedLayer) -> Call:
        body, shortcut = (self._branch(branch) for branch in (named.body, named.shortcut))
        if named.shortcut:
            return Call("Parallel", ("+", body, shortcut))
        return Call("SkipConnection", (body, "+"))

    def _branch(self, layers: Sequence[NamedLayer]) -> str | Call:
        """Return the Chain of a branch; without layers its gradient would be nothing."""
        return Call("Chain", tuple(self._items(layers))) if layers else "identity"

    def _block(self, block: Block, activations: dict[str, str]) -> str:
        """Write the function that makes a block, and return its name."""
        items = [item for named in block.layers for item in self._layer(named, activations)]
        made = items[0] if len(items) == 1 else Call("Chain", tuple(items))
        name = f"block{len(self.functions) + 1}" if self.functions else "block"
        lines = indented([written("return ", made, room=LINE - 4)])
        self.functions.append("\n".join([f"function {name}()", *lines, "end"]))
        return name

    def _define(self, definitions: Sequence[str]) -> None:
        self.definitions += [text for text in definitions if text not in self.definitions]

    def _seeded(self, named: NamedLayer, build: Call) -> Call:
        """Return a dropout with a generator of its own, whose seed is the row's."""
        if not isinstance(named.layer, models.Dropout) or self.training.device == "gpu":
            return build
        layers = self.training.model.all_layers()
        names = sorted(other.name for other in layers if isinstance(other.layer, models.Dropout))
        seed = names.index(named.name) + 1
        return Call(build.function, (f"{build.arguments[0]}; rng = Xoshiro({seed})",))


TIED = "embedding"
"""The variable of the layer whose weight the last one shares."""


def fused(layers: Sequence[NamedLayer]) -> Iterator[tuple[NamedLayer, *tuple[str, ...]]]:
    """Yield each layer with the activation that follows it, if it applies one itself."""
    rest = list(layers)
    while rest:
        named = rest.pop(0)
        activation = activation_source(rest[0].layer) if rest else None
        if activation and isinstance(named.layer, WITH_ACTIVATION):
            rest.pop(0)
            yield named, activation
        else:
            yield (named,)


def _function(output: str) -> str:
    """Return the function with an output, an expression of {x}."""
    name = output.removesuffix("({x})")
    if name.replace(".", "").replace("_", "").isalnum() and not name.endswith("."):
        return name
    return f"x -> {output.format(x='x')}"


def written(start: str, item: str | Call, end: str = "", room: int = LINE) -> str:
    """Return a statement, broken into lines as JuliaFormatter does: each argument on its own."""
    line = f"{start}{item}{end}"
    if len(line) <= room or isinstance(item, str):
        return line
    arguments = indented(written("", argument, ",", room - 4) for argument in item.arguments)
    return "\n".join([f"{start}{item.function}(", *arguments, f"){end}"])


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return the trained weights in the order of Flux.trainables, with the program's axes reversed.

    Running statistics start at the values that Flux gives them.
    """
    found = {}
    for named in training.model.all_layers():
        names = list(parameters(named))
        if isinstance(named.layer, models.BatchNorm):
            names.reverse()  # Flux has the bias first
        for name in names:
            full_name = f"{named.name}.{name}"
            found[full_name] = _as_in_flux(named, weights[full_name])
    return found


def _as_in_flux(named: NamedLayer, array: np.ndarray) -> np.ndarray:
    if is_flipped(named, array.shape):
        return array[:, :, ::-1, ::-1]
    return array.T if is_transposed(named, array.shape) else array


def _heading(training: Training, text: str) -> str:
    """Return the comment that says what the program does, and how it is started.

    text: the statements that make the model.
    """
    command = f"`julia --threads {training.threads}`"
    variables = []
    if training.variant == MALLOC:
        variables = [f"{name}={value}" for name, value in MALLOC_VARIANT.environment.items()]
    packages = "Flux is"
    if training.device == "gpu":
        variables.append("NVIDIA_TF32_OVERRIDE=0")  # cuDNN asks nothing else
        packages = "Flux, CUDA and cuDNN are"
    start = f"Start it by {command}, where {packages} installed"
    if variables:
        start += f", in the environment {' '.join(variables)}"
    notes = [f"{start}.", *([NORM_NOTE] if "eps = sqrt" in text else [])]
    lines = docstring(training, "Flux.jl", *notes).split("\n")
    return "\n".join(f"# {line}".rstrip() for line in lines)


NORM_NOTE = "Flux's LayerNorm adds the square of its eps to the variance."


def _imports(training: Training, text: str) -> str:
    """Return the statements that import what the program needs."""
    dot = ", dot" if "dot(" in text else ""
    lines = [
        "using CUDA, cuDNN" if training.device == "gpu" else "",
        "using Flux",
        f"using LinearAlgebra: BLAS{dot}",
        "using Printf: @printf, @sprintf",
        "using Random: Xoshiro" if "Xoshiro(" in text else "",
        "using Statistics: mean" if "mean(" in text else "",
    ]
    return "\n".join(filter(None, lines))


def _sizes(training: Training) -> str:
    """Return the statement that names the sizes of an epoch."""
    sizes = {"BATCH_SIZE": training.batch_size, "BATCHES": training.batches}
    if training.model.has_accuracy:
        sizes["TEST"] = training.test_examples
    return f"const {', '.join(sizes)} = {', '.join(map(str, sizes.values()))}"


OPTION = '''
"""Return the word that follows --name on the command line."""
function option(name, default)
    place = findfirst(==("--$name"), ARGS)
    return isnothing(place) ? default : ARGS[place+1]
end
'''


def _constants(training: Training, path: str) -> str:
    """Return the statements that read the command line."""
    return "\n".join(
        [
            f'const DATA = option("data", {path})',
            f'const INITIAL = option("initial", {beside(training.weights)})',
            'const T = option("dtype", "float32") == "float64" ? Float64 : Float32',
            f'const EPOCHS = parse(Int, option("epochs", "{EPOCHS}"))',
        ]
    )


def _blas_threads(training: Training) -> str:
    """Return the statement that sets BLAS' threads: Julia's have the batch of a convolution."""
    if training.threads == 1 or not convolves(training.model):
        return f"BLAS.set_num_threads({training.threads})"
    return "BLAS.set_num_threads(1)  # Julia's threads share the batch of a convolution"


def _gpu(training: Training) -> list[str]:
    """Return the statements that choose the GPU."""
    if training.device != "gpu":
        return []
    return [
        "CUDA.math_mode!(CUDA.PEDANTIC_MATH)  # float32 means float32",
        "const device = gpu_device(nothing, nothing; force = true)  # which keeps Float64",
    ]


def _rate_and_clip(training: Training) -> list[str]:
    """Return the functions of the schedule and the clipping."""
    model = training.model
    functions = [schedule_source(model.optimizer)] if model.optimizer.schedule else []
    if model.optimizer.clip_norm is not None:
        is_tied = any(isinstance(layer, models.Unembedding) for layer in model.layers)
        tied = TIED_SQUARES if is_tied else ""
        functions.append(CLIP.format(norm=code(model.optimizer.clip_norm), tied=tied))
    return functions


TIED_SQUARES = """
    # the weight of the embedding has two gradients: |a + b|^2 = |a|^2 + |b|^2 + 2 a b
    squares += 2 * dot(gradient.layers[1].weight, gradient.layers[end].weight)
""".lstrip("\n")
CLIP = '''
"""Scale the gradient down where the norm of all its arrays together is over {norm}."""
function clip(gradient)
    squares = sum(array -> sum(abs2, array), Flux.trainables(gradient))
{tied}    norm = sqrt(squares)
    norm <= {norm} && return gradient
    return fmap(x -> x isa AbstractArray ? T({norm} / norm) .* x : x, gradient)
end
'''


def _train_epoch(training: Training) -> list[str]:
    """Return the function that trains."""
    loss, _ = loss_source(training.model)
    optimizer = training.model.optimizer
    given, each = ["model", "state", "batches"], "for (x, y) in batches"
    schedule = []
    if optimizer.schedule:
        given.append("epoch")
        each = "for (step, (x, y)) in enumerate(batches)"
        schedule = ["Flux.adjust!(state, rate((epoch - 1) * BATCHES + step - 1))"]
    gradient = "gradients[1]" if optimizer.clip_norm is None else "clip(gradients[1])"
    step = [
        *schedule,
        "loss, gradients = Flux.withgradient(model) do m",
        f"    {loss}(m(x), y)",
        "end",
        f"Flux.update!(state, model, {gradient})",
        "push!(losses, loss)",
    ]
    body = ["losses = Float64[]", each, *indented(step), "end"]
    if training.device == "gpu":
        body.append("CUDA.synchronize()")
    return [
        '"""Train on every batch once, and return the loss of each step."""',
        f"function train_epoch!({', '.join(given)})",
        *indented([*body, "return losses"]),
        "end",
    ]


def _batches(training: Training) -> list[str]:
    """Return the statements that bring the batches to the device, if they are made in advance."""
    if training.is_augmented:
        return []
    moved = " |> device" if training.device == "gpu" else ""
    loader = "Flux.DataLoader(train; batchsize = BATCH_SIZE)"
    return [f"batches = [to_batch(x, y){moved} for (x, y) in {loader}]"]


def _initial_state(training: Training) -> list[str]:
    """Return the statements that load the weights, and make the optimizer's state."""
    optimizer = training.model.optimizer
    is_on_gpu = training.device == "gpu"
    lines = [*LOAD_WEIGHTS, *(["model = model |> device"] if is_on_gpu else [])]
    lines.append(f"state = Flux.setup({optimizer_source(optimizer)}, model)")
    if isinstance(optimizer, models.AdamW) and optimizer.matrices_only:
        lines += NO_DECAY
    if is_on_gpu and training.has_dropout:
        lines.append("CUDA.seed!(1)  # of the dropout masks")
    return lines


LOAD_WEIGHTS = (
    "open(INITIAL) do file",
    "    foreach(array -> read!(file, array), Flux.trainables(model))",
    "end",
    "T == Float64 && (model = f64(model))",
)
NO_DECAY = (
    "for (path, parameter) in Flux.trainables(model; path = true)",
    "    ndims(parameter) > 1 && continue",
    "    Flux.adjust!(Flux.Functors.getkeypath(state, path); lambda = 0.0)",
    "end",
)


def _epochs(training: Training, data: JuliaData) -> list[str]:
    """Return the statements that train, and print the time and the losses."""
    given = ", epoch" if training.model.optimizer.schedule else ""
    train = f"train_epoch!(model, state, batches{given})"
    return [
        "for epoch = 1:EPOCHS",
        *indented(data.epoch_batches),
        f"    seconds = @elapsed global losses = {train}",
        f'    shown = [@sprintf("%.8g", loss) for loss in [first(losses, {SHOWN}); losses[end]]]',
        '    @printf("epoch %d: %.4g s, losses %s\\n", epoch, seconds, join(shown, " "))',
        "end",
    ]


def _evaluation(training: Training, data: JuliaData) -> list[str]:
    """Return the statements that print the share of the test examples that are right."""
    if not training.model.has_accuracy:
        return []
    outputs = "model(x |> device) |> cpu" if training.device == "gpu" else "model(x)"
    match training.model.loss:
        case models.BinaryCrossEntropy():
            right = f"({outputs} .> 0) .== y"
        case models.SoftmaxCrossEntropy():
            right = f"Flux.onecold({outputs}) .== Flux.onecold(y)"
        case other:
            raise unsupported("loss with an accuracy", other, "Flux.jl")
    return [
        *data.test,
        "right = sum(Flux.DataLoader(test; batchsize = BATCH_SIZE)) do examples",
        "    x, y = to_batch(examples...)",
        f"    sum({right})",
        "end",
        '@printf("accuracy: %.1f%%\\n", 100 * right / TEST)',
    ]
