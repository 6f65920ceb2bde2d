"""Write the programs, in Julia, that train a model, or time a part of its step. Needs no Julia.

How a framework makes the model, takes a step and predicts is in its adapter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from .. import models
from ..inputs.names import IDIOMATIC, MALLOC
from ..models.model import Model, Weights
from ..models.parameters import Shape
from ..source.part_programs import CALLS, WARM_UP, PartTraining, summary
from ..source.statements import indented, unsupported
from ..source.training_programs import EPOCHS, SHOWN, Training, check_variant, docstring
from ..workload import MALLOC_VARIANT
from .chain import Chain
from .data import JuliaData, example_arrays, julia_data
from .definitions import definitions_in
from .source import (
    TITLE,
    Imports,
    LossSource,
    Place,
    beside,
    blas_threads,
    code,
    convolves,
    schedule_source,
)


@dataclass(frozen=True)
class EpochSource:
    """Says how a framework's users train on every batch once.

    summary: what the function does. function: its name. given: its arguments before the batches.
    adjust: the statement that sets the learning rate to {rate}. step: statements that train on
    (x, y), and find its `loss`. results: what the function returns, `losses` first.
    """

    summary: str
    function: str
    given: tuple[str, ...]
    adjust: str
    step: tuple[str, ...]
    results: str


class TrainingDialect(ABC):
    """Says how a framework in Julia writes what is its own in the program of a training."""

    title: ClassVar[str]
    package: ClassVar[str]
    """The framework's package, whose version a program prints."""
    data_loader: ClassVar[str]
    """The function that returns batches of examples."""
    onecold: ClassVar[str]
    """The function that returns the classes with the largest outputs."""

    layers: ClassVar[Path]
    """The file with the structs and functions of layers that the framework has not got."""
    state_of: ClassVar[tuple[str, ...]]
    """The variables that the statements of `state` take."""
    given_gradient: ClassVar[str]
    """The loss of a row whose labels are the gradient of the outputs."""

    def __init__(self, model: Model, device: str) -> None:
        self.model, self.device = model, device
        dropouts = (named.name for named in model.all_layers() if self.has_masks(named.layer))
        self.dropouts = sorted(dropouts)
        """Their names, in the order of their seeds."""

    def has_masks(self, layer: models.Layer) -> bool:
        """Return whether a layer draws masks in the framework."""
        return isinstance(layer, models.Dropout)

    @property
    def is_on_gpu(self) -> bool:
        return self.device == "gpu"

    @property
    def loss(self) -> LossSource:
        return self.loss_source()

    @abstractmethod
    def loss_source(self, first: int = 0) -> LossSource:
        """Return the loss of the model. first: the first class."""

    @abstractmethod
    def places(self) -> list[Place]:
        """Return the arrays of the model, in the framework's order."""

    @abstractmethod
    def imports(self) -> Imports:
        """Return what the program may import."""

    @abstractmethod
    def chain(self) -> Chain:
        """Return what writes the model."""

    @abstractmethod
    def clip(self, norm: str) -> str:
        """Return the function `clip`, which scales a gradient down to a norm."""

    @abstractmethod
    def epoch(self) -> EpochSource:
        """Return how an epoch is written."""

    def made(self) -> list[str]:
        """Return statements behind those that make the model, where its weights are its own."""
        return []

    @abstractmethod
    def load_weights(self) -> list[str]:
        """Return the statements that load the weights, and move them to the device."""

    @abstractmethod
    def state(self) -> list[str]:
        """Return the statements that make the optimizer's `state`."""

    def seeds(self) -> list[str]:
        """Return the statements that seed the dropout masks, where the layers do not."""
        return []

    @abstractmethod
    def gradients(self) -> tuple[str, str]:
        """Return the function of a batch's gradients, without an update, and its call."""

    @abstractmethod
    def outputs(self) -> tuple[list[str], str]:
        """Return statements before a prediction, and the expression of the outputs of x."""


class JuliaPrograms:
    """Writes the programs of a framework in Julia, as `Programs` has them."""

    def __init__(self, dialect: type[TrainingDialect]) -> None:
        self.dialect = dialect

    example_arrays = staticmethod(example_arrays)

    def training_program(self, training: Training) -> str:
        package = self.dialect.package
        where = f"julia/CrossBench{package}/src/{{variant}}.jl"
        check_variant(training, (IDIOMATIC, MALLOC), package.lower(), where)
        return training_program(self.dialect(training.model, training.device), training)

    def part_program(self, training: PartTraining) -> str:
        return part_program(self.dialect(training.model, training.device), training)

    def initial_arrays(self, training: Training, weights: Weights) -> dict[str, np.ndarray]:
        """Return the trained weights in the framework's order, with the program's axes.

        Running statistics start at the values that the framework gives them.
        """
        places = self.dialect(training.model, training.device).places()
        return {
            place.full_name or f"zeros {number}": place.array(weights)
            for number, place in enumerate(places)
            if place.is_trained
        }


def training_program(dialect: TrainingDialect, training: Training) -> str:
    """Return the program that trains a model."""
    first = int(dialect.model.example_shapes.are_language)  # token ids count from 1
    targets = dialect.loss_source(first).targets
    data, (functions, model) = julia_data(training, dialect.data_loader, targets), _model(dialect)
    own = [*functions, *rate_and_clip(dialect)]
    blocks = [
        _sizes(training),
        OPTION.strip(),
        _constants(training, data.path),
        "\n".join([_blas_threads(training), *_gpu(training)]),
        *(text.strip() for text in [*own, *data.functions, *_loss(dialect), _train_epoch(dialect)]),
        "\n".join([*data.train, *_batches(dialect, training.is_augmented)]),
        "\n".join([*model, *dialect.load_weights(), *dialect.state(), *dialect.seeds()]),
        "\n".join(_epochs(dialect, data)),
        "\n".join(_evaluation(dialect, data)),
    ]
    text = "\n\n".join(block for block in blocks if block) + "\n"
    needed = dialect.imports()
    start = _start(dialect, training, needed.installed(text))
    comment = _comment(docstring(training, dialect.title, start))
    return "\n\n".join([comment, "\n".join(needed.statements(text)), text])


def part_program(dialect: TrainingDialect, training: PartTraining) -> str:
    """Return the program that times a piece of work."""
    own, made = _model(dialect)
    made += dialect.made()
    function, call = dialect.gradients()
    if training.trains:
        own += rate_and_clip(dialect)
        function, call = _train_epoch(dialect), _call_of_epoch(dialect, "[(x, y)]", "1")
    if needs_state := "state" in call:
        made += dialect.state()
    sizes = {"BATCH_SIZE": training.batch_size, "WARM_UP": WARM_UP, "CALLS": CALLS}
    names = ", ".join(["T", *sizes, *["BATCHES"] * training.trains])
    numbers = ", ".join(["Float32", *map(str, sizes.values()), *["1"] * training.trains])
    blocks = [
        f"const {names} = {numbers}",
        _blas_threads(training),
        *(text.strip() for text in [*own, *(_loss(dialect) if needs_state else []), function]),
        "\n".join(_examples(dialect)),
        "\n".join(made),
        f"seconds = [@elapsed {call} for _ = 1:WARM_UP+CALLS]",
        PRINT_TIME.format(package=dialect.package),
    ]
    text = "\n\n".join(block for block in blocks if block) + "\n"
    needed = dialect.imports()
    start = _start(dialect, training, needed.installed(text))
    comment = _comment(summary(training, dialect.title, start))
    return "\n\n".join([comment, "\n".join(needed.statements(text)), text])


def _model(dialect: TrainingDialect) -> tuple[list[str], list[str]]:
    """Return the structs and functions of a model, and the statements that make it."""
    chain = dialect.chain()
    statements = chain.statements(list(dialect.model.named_layers()))
    own = definitions_in("\n".join([*chain.functions, *statements]), dialect.layers)
    return [*own, *chain.functions], statements


def _loss(dialect: TrainingDialect) -> list[str]:
    """Return the statement that makes the loss, where the framework has not got it."""
    loss = dialect.loss
    return [f"const {loss.function} = {loss.made}"] if loss.made else []


PRINT_TIME = (
    '@printf("%.3f ms, {package} %s\\n", 1000 * median(seconds[WARM_UP+1:end]), '
    "pkgversion({package}))"
)


def _examples(dialect: TrainingDialect) -> list[str]:
    """Return the statements that draw a batch `x` and `y`; token ids count from 1."""
    model = dialect.model
    tokens = f"Int32(1):Int32({model.vocabulary})" if model.vocabulary else None
    classes = f"0:{model.classes - 1}" if model.classes else None
    labels, targets = _drawn(model.label_shape, classes), dialect.loss.targets
    return [
        "rng = Xoshiro(0)",
        f"x = {_drawn(model.input_shape, tokens)}",
        *([f"y = {labels}"] if targets == "labels" else [f"labels = {labels}", f"y = {targets}"]),
    ]


def _drawn(shape: Shape, numbers: str | None) -> str:
    """Return the array of random numbers for a batch. numbers: the range of whole ones."""
    sizes = ", ".join([*map(str, shape[::-1]), "BATCH_SIZE"])
    return f"rand(rng, {numbers}, {sizes})" if numbers else f"rand(rng, T, {sizes}) .- T(0.5)"


def _start(dialect: TrainingDialect, training: Training, installed: str) -> str:
    """Return the sentence on how the program is started."""
    variables = []
    if training.variant == MALLOC:
        variables = [f"{name}={value}" for name, value in MALLOC_VARIANT.environment.items()]
    if dialect.is_on_gpu:
        variables.append("NVIDIA_TF32_OVERRIDE=0")  # cuDNN asks nothing else
    start = f"Start it by `julia --threads {training.threads}`, where {installed} installed"
    if variables:
        start += f", in the environment {' '.join(variables)}"
    return f"{start}."


def _comment(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.split("\n"))


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
    return blas_threads(training.threads, training.threads > 1 and convolves(training.model))


def _gpu(training: Training) -> list[str]:
    """Return the statements that choose the GPU."""
    if training.device != "gpu":
        return []
    return [
        "CUDA.math_mode!(CUDA.PEDANTIC_MATH)  # float32 means float32",
        "const device = gpu_device(nothing, nothing; force = true)  # which keeps Float64",
    ]


def rate_and_clip(dialect: TrainingDialect) -> list[str]:
    """Return the functions of the schedule and the clipping."""
    optimizer = dialect.model.optimizer
    functions = [schedule_source(optimizer)] if optimizer.schedule else []
    if optimizer.clip_norm is not None:
        functions.append(dialect.clip(code(optimizer.clip_norm)))
    return functions


def _train_epoch(dialect: TrainingDialect) -> str:
    """Return the function that trains."""
    source = dialect.epoch()
    given, each = [*source.given, "batches"], "for (x, y) in batches"
    schedule = []
    if dialect.model.optimizer.schedule:
        given.append("epoch")
        each = "for (step, (x, y)) in enumerate(batches)"
        schedule = [source.adjust.format(rate="rate((epoch - 1) * BATCHES + step - 1)")]
    step = [*schedule, *source.step, "push!(losses, loss)"]
    body = ["losses = Float64[]", each, *indented(step), "end"]
    if dialect.is_on_gpu:
        body.append("CUDA.synchronize()")
    return "\n".join(
        [
            f'"""{source.summary}"""',
            f"function {source.function}({', '.join(given)})",
            *indented([*body, f"return {source.results}"]),
            "end",
        ]
    )


def _batches(dialect: TrainingDialect, is_augmented: bool) -> list[str]:
    """Return the statements that bring the batches to the device, if they are made in advance."""
    if is_augmented:
        return []
    moved = " |> device" if dialect.is_on_gpu else ""
    loader = f"{dialect.data_loader}(train; batchsize = BATCH_SIZE)"
    return [f"batches = [to_batch(x, y){moved} for (x, y) in {loader}]"]


def _epochs(dialect: TrainingDialect, data: JuliaData) -> list[str]:
    """Return the statements that train, and print the time and the losses."""
    results, train = dialect.epoch().results, _call_of_epoch(dialect)
    return [
        "for epoch = 1:EPOCHS",
        *indented(data.epoch_batches),
        f"    seconds = @elapsed global {results} = {train}",
        f'    shown = [@sprintf("%.8g", loss) for loss in [first(losses, {SHOWN}); losses[end]]]',
        '    @printf("epoch %d: %.4g s, losses %s\\n", epoch, seconds, join(shown, " "))',
        "end",
    ]


def _call_of_epoch(dialect: TrainingDialect, batches: str = "batches", epoch: str = "epoch") -> str:
    source = dialect.epoch()
    given = [*source.given, batches]
    if dialect.model.optimizer.schedule:
        given.append(epoch)
    return f"{source.function}({', '.join(given)})"


def _evaluation(dialect: TrainingDialect, data: JuliaData) -> list[str]:
    """Return the statements that print the share of the test examples that are right."""
    model = dialect.model
    if not model.has_accuracy:
        return []
    before, outputs = dialect.outputs()
    match model.loss:
        case models.BinaryCrossEntropy():
            right = f"({outputs} .> 0) .== y"
        case models.SoftmaxCrossEntropy():
            right = f"{dialect.onecold}({outputs}) .== {dialect.onecold}(y)"
        case other:
            raise unsupported("loss with an accuracy", other, TITLE)
    return [
        *data.test,
        *before,
        f"right = sum({dialect.data_loader}(test; batchsize = BATCH_SIZE)) do examples",
        "    x, y = to_batch(examples...)",
        f"    sum({right})",
        "end",
        '@printf("accuracy: %.1f%%\\n", 100 * right / TEST)',
    ]
