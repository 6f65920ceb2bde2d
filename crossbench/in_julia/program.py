"""Write the programs, in Julia, that train a model, or time a part of its step. Needs no Julia.

How a framework makes the model, takes a step and predicts is in its adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .. import models
from ..inputs.names import IDIOMATIC, MALLOC
from ..models.model import Weights
from ..models.parameters import Shape
from ..source.part_programs import PartTraining, summary
from ..source.statements import indented, unsupported
from ..source.training_programs import (
    EPOCHS,
    SHOWN,
    Training,
    assigned,
    check_variant,
    docstring,
)
from ..workload import MALLOC_VARIANT
from .definitions import definitions_in, layers_in
from .dialect import Dialect
from .examples import example_arrays, julia_data
from .source import TITLE, beside, convolves


class JuliaPrograms:
    """Writes the programs of a framework in Julia, as `Programs` has them."""

    def __init__(self, dialect: type[Dialect]) -> None:
        self.dialect = dialect

    example_arrays = staticmethod(example_arrays)

    def training_program(self, training: Training) -> str:
        """Return the program that trains a model."""
        package = self.dialect.package
        where = f"julia/CrossBench{package}/src/{{variant}}.jl"
        check_variant(training, (IDIOMATIC, MALLOC), package.lower(), where)
        dialect = self.dialect(training.model, training.device)
        first = int(dialect.model.example_shapes.are_language)  # token ids count from 1
        data = julia_data(training, dialect.data_loader, dialect.loss_source(first).targets)
        functions, model = _model(dialect)
        functions += [*_rules(dialect), *dialect.rate_and_clip()]
        functions += [*data.functions, *_loss(dialect)]
        load = [*dialect.setup, *dialect.load_weights()]
        blocks = [
            f"const {assigned(training.sizes)}",
            OPTION.strip(),
            _constants(training, data.path),
            "\n".join([_blas_threads(training), *_gpu(training)]),
            *(text.strip() for text in [*functions, _train_epoch(dialect)]),
            "\n".join([*data.train, *_batches(dialect, training.is_augmented)]),
            "\n".join([*model, *load, *dialect.state(), *dialect.seeds()]),
            "\n".join(_epochs(dialect, training.is_augmented)),
            "\n".join(_evaluation(dialect, data.test)),
        ]
        return _program(dialect, training, docstring, blocks)

    def part_program(self, training: PartTraining) -> str:
        """Return the program that times a piece of work."""
        dialect = self.dialect(training.model, training.device)
        functions, made = _model(dialect)
        made += dialect.setup
        function, call = dialect.gradients()
        if training.trains:
            functions += [*_rules(dialect), *dialect.rate_and_clip()]
            function, call = _train_epoch(dialect), _call_of_epoch(dialect, "[(x, y)]", "1")
        if "state" in call:
            functions += _loss(dialect)
            made += dialect.state()
        sizes = {"T": "Float32"} | training.sizes | ({"BATCHES": 1} if training.trains else {})
        blocks = [
            f"const {assigned(sizes)}",
            _blas_threads(training),
            *(text.strip() for text in [*functions, function]),
            "\n".join(_examples(dialect)),
            "\n".join(made),
            f"seconds = [@elapsed {call} for _ = 1:WARM_UP+CALLS]",
            PRINT_TIME.format(package=dialect.package),
        ]
        return _program(dialect, training, summary, blocks)

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


def _program(
    dialect: Dialect, training: Training, says: Callable[..., str], blocks: Sequence[str]
) -> str:
    """Return a program of these blocks, behind its imports and the comment that says what it does
    and how it is started.
    """
    text = "\n\n".join(block for block in blocks if block) + "\n"
    needed = dialect.imports()
    comment = says(training, dialect.title, _start(dialect, training, needed.installed(text)))
    lines = "\n".join(f"# {line}".rstrip() for line in comment.split("\n"))
    return "\n\n".join([lines, "\n".join(needed.statements(text)), text])


def _model(dialect: Dialect) -> tuple[list[str], list[str]]:
    """Return the structs and functions of a model, and the statements that make it."""
    functions, statements = dialect.made()
    loss = dialect.loss
    text = "\n".join([*functions, *statements, loss.function, loss.made, loss.targets])
    return [*layers_in(text, f"CrossBench{dialect.package}"), *functions], statements


def _rules(dialect: Dialect) -> list[str]:
    """Return the rules of the optimizer that Optimisers.jl has not got."""
    return definitions_in("\n".join(dialect.state()), "CrossBenchJulia/src/rules.jl")


def _loss(dialect: Dialect) -> list[str]:
    """Return the statement that makes the loss, where the framework has not got it."""
    loss = dialect.loss
    return [f"const {loss.function} = {loss.made}"] if loss.made else []


PRINT_TIME = (
    '@printf("%.3f ms, {package} %s\\n", 1000 * median(seconds[WARM_UP+1:end]), '
    "pkgversion({package}))"
)


def _examples(dialect: Dialect) -> list[str]:
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


def _start(dialect: Dialect, training: Training, installed: str) -> str:
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
    if training.threads > 1 and convolves(training.model):
        return "BLAS.set_num_threads(1)  # Julia's threads share the batch of a convolution"
    return f"BLAS.set_num_threads({training.threads})"


def _gpu(training: Training) -> list[str]:
    """Return the statements that choose the GPU."""
    if training.device != "gpu":
        return []
    return [
        "CUDA.math_mode!(CUDA.PEDANTIC_MATH)  # float32 means float32",
        "const device = gpu_device(nothing, nothing; force = true)  # which keeps Float64",
    ]


def _train_epoch(dialect: Dialect) -> str:
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


def _batches(dialect: Dialect, is_augmented: bool) -> list[str]:
    """Return the statements that bring the batches to the device, if they are made in advance."""
    if is_augmented:
        return []
    moved = " |> device" if dialect.is_on_gpu else ""
    loader = f"{dialect.data_loader}(train; batchsize = BATCH_SIZE)"
    return [f"batches = [to_batch(x, y){moved} for (x, y) in {loader}]"]


def _epochs(dialect: Dialect, is_augmented: bool) -> list[str]:
    """Return the statements that train, and print the time and the losses."""
    results, train = dialect.epoch().results, _call_of_epoch(dialect)
    return [
        "for epoch = 1:EPOCHS",
        *["    batches = augmented(train, drawn, epoch)"] * is_augmented,
        f"    seconds = @elapsed global {results} = {train}",
        f'    shown = [@sprintf("%.8g", loss) for loss in [first(losses, {SHOWN}); losses[end]]]',
        '    @printf("epoch %d: %.4g s, losses %s\\n", epoch, seconds, join(shown, " "))',
        "end",
    ]


def _call_of_epoch(dialect: Dialect, batches: str = "batches", epoch: str = "epoch") -> str:
    source = dialect.epoch()
    given = [*source.given, batches]
    if dialect.model.optimizer.schedule:
        given.append(epoch)
    return f"{source.function}({', '.join(given)})"


def _evaluation(dialect: Dialect, test: Sequence[str]) -> list[str]:
    """Return the statements that print the share of the test examples that are right.

    test: those that load these examples.
    """
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
        *test,
        *before,
        f"right = sum({dialect.data_loader}(test; batchsize = BATCH_SIZE)) do examples",
        "    x, y = to_batch(examples...)",
        f"    sum({right})",
        "end",
        '@printf("accuracy: %.1f%%\\n", 100 * right / TEST)',
    ]
