"""An adapter's programs, run here in float64, compute what the NumPy reference does, and what the
adapter's own workload does: for each kind of layer, loss and optimizer. --adapters names others.
"""

import ast
import os
import re
import runpy
import subprocess
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from small_models import SMALL_MODELS

from crossbench import adapters, models
from crossbench.adapters.reference import Pass, loss_and_gradient
from crossbench.adapters.reference.passes import forward_all
from crossbench.adapters.reference.sequences import TIED_WEIGHT
from crossbench.adapters.reference.training import State, clip, update
from crossbench.engine.batches import ArrayBatches
from crossbench.models.parts import LOSS, OPTIMIZER, find_part, parts
from crossbench.models.training import GivenGradient
from crossbench.source.part_programs import CALLS, WARM_UP
from crossbench.workload import Job

BATCH = 4
BOUND = 1e-9
"""How far a program's arrays may be from the reference's, ‖a - b‖ / ‖b‖."""
FLOAT32_BOUND = 1e-5
"""The same where the framework computes in float32 all the same: the softmax of an attention, and
the constants of a GELU.
"""
IN_FLOAT32 = {
    "jax": (models.MultiHeadAttention,),
    "keras": (models.MultiHeadAttention, models.GELU),
}
OWN_FORMULA = {"keras": (models.Adam, models.AdamW, models.RMSprop)}
"""Optimizers to which a framework adds epsilon elsewhere: they are compared with next to none."""
OPTIMIZER_BOUND = {"keras": 1e-5, "torch": 1e-5}
"""The bound for optimizers: in Keras the rate and what depends on the step are in float32, PyTorch
adds 1e-6 to the norm by which it clips.
"""
NEGLIGIBLE = 1e-3
"""Share of the norm of all gradients, below which one is compared with so much of it: that of an
attention's key bias is 0.
"""
THREADS = 2
UPDATES = 14
"""Of a program: one whose result is printed, three to warm up, and ten that are timed."""


def form(part):
    """Return what decides how the lines of a part are written."""
    model = part.whole.model
    if part.name == LOSS:
        return model.loss, len(model.output_shape)
    if part.name == OPTIMIZER:
        optimizer = model.optimizer
        return type(optimizer), optimizer.schedule, optimizer.clip_norm
    layers = []
    for named in part.layers:
        chosen = {k: v for k, v in vars(named.layer).items() if isinstance(v, bool)}
        if isinstance(named.layer, models.Conv):
            chosen |= {"stride": named.layer.stride != (1, 1), "pad": any(named.layer.padding)}
        layers.append((type(named.layer), *chosen.items(), len(named.input_shape)))
    return tuple(layers), part.before is None


def cases():
    """Return the parts of the small models, one of each form."""
    found = {}
    for model in SMALL_MODELS.values():
        for part in parts(model):
            name = f"{model.name}-{part.name}"
            found.setdefault(form(part), pytest.param(model, part, id=name))
    return list(found.values())


CASES = cases()
OF_LAYERS = [case for case in CASES if case.values[1].layers]
DROPPED = [c for c in OF_LAYERS if isinstance(c.values[1].layers[-1].layer, models.Dropout)]
LAYERS = [case for case in OF_LAYERS if case not in DROPPED]
LOSSES = [case for case in CASES if case.values[1].name == LOSS]
CLIPPED = replace(SMALL_MODELS["plain"], optimizer=models.SGD(0.01, momentum=0.9, clip_norm=0.5))
"""Unlike Adam, which takes the same steps with gradients that are all smaller."""
OPTIMIZERS = [
    *(case for case in CASES if case.values[1].name == OPTIMIZER),
    pytest.param(CLIPPED, find_part(CLIPPED, OPTIMIZER), id="clipped-optimizer"),
]


def numbers(*shape, phase=0):
    """Return what the programs' function of numbers does, in the canonical axes."""
    return np.sin(np.arange(np.prod(shape)) ** 2 + phase).reshape(shape)


def whole_numbers(below, *shape, dtype):
    return (np.arange(np.prod(shape)) * 7919 % below).reshape(shape).astype(dtype)


pytestmark = pytest.mark.programs


@pytest.fixture
def program(adapter, adapter_name, tmp_path):
    """Return a function that runs the program of a part in float64, and returns its variables."""
    run = RUNNERS.get(adapter_name, run_python)

    def variables(model, part):
        text = adapter.part_program(part, model, BATCH, THREADS)
        file = tmp_path / f"program{adapter.program_suffix}"
        file.write_text(text)
        return run(file)

    environment = dict(os.environ)
    yield variables
    os.environ.clear()
    os.environ.update(environment)
    with suppress(ImportError):
        import torch

        torch.set_default_dtype(torch.float32)


FOR_A_PROCESS = ("tf.config.threading", 'jax.config.update("jax_platforms"')
"""How the lines begin that only a process's first program may have, or that others would feel."""


def run_python(file):
    lines = file.read_text().replace('"float32"', '"float64"').splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith(FOR_A_PROCESS)))
    return runpy.run_path(str(file))


def run_julia(file):
    from juliacall import Main

    file.write_text(file.read_text().replace("= Float32,", "= Float64,"))
    module = Main.seval("Module()")
    Main.Base.include(module, str(file))
    names = ("output", "x_gradient", "value", "gradient", "gradients", "parameters", "after_first",
             "batchnorm2", "states")  # fmt: skip
    found = {n: getattr(module, n) for n in names if Main.isdefined(module, Main.Symbol(n))}
    if "gradients" in found:
        pairs = Main.pairs(found["gradients"])
        found["gradients"] = {str(name): array for name, array in pairs.items()}
    return found


RUNNERS = {"flux": run_julia, "lux": run_julia}
FIRST_AXIS_LAST = ("flux", "lux")
"""Frameworks whose axes are the canonical ones, reversed."""
CHANNELS_LAST = ("jax", "keras")


def as_array(framework, value):
    """Return an array of a framework, in C order."""
    if framework in FIRST_AXIS_LAST:
        from juliacall import Main

        return np.asarray(Main.collect(value)).T
    array = np.asarray(value.detach() if hasattr(value, "detach") else value)
    assert array.dtype == np.float64
    return array


def of_batch(framework, value):
    """Return an input, an output or their gradient in the canonical axes."""
    array = as_array(framework, value)
    is_picture = framework in CHANNELS_LAST and array.ndim == 4
    return array.transpose(0, 3, 1, 2) if is_picture else array


def of_parameter(framework, named, value, shape):
    """Return the gradient of a layer's parameter in the canonical axes."""
    array = as_array(framework, value)
    is_transposed = isinstance(named.layer, TRANSPOSED) and len(shape) == 2
    if framework in FIRST_AXIS_LAST:
        if len(shape) == 4:
            return array[:, :, ::-1, ::-1]
        return array.T if is_transposed else array.reshape(shape)  # Lux's norms have (1, 1, F)
    if framework not in CHANNELS_LAST:
        return array
    if len(shape) == 4:
        return array.transpose(3, 2, 0, 1)
    if is_transposed:
        array = array.reshape(shape[::-1]).T
    if framework == "keras" and isinstance(named.layer, models.GRU):
        update, reset, new = np.split(array, 3)
        array = np.concatenate([reset, update, new])
    return array.reshape(shape)


TRANSPOSED = (models.Dense, models.MultiHeadAttention, models.LSTM, models.GRU)
"""Layers with matrices that other frameworks than torch have the other way round."""


def reference(part):
    """Return the output of a part's layers, and by name each gradient with its layer, from the
    definitions.
    """
    weights, parameters = {}, {}
    for named in part.layers:
        for name, parameter in named.parameters.items():
            weights[name] = 0.1 * numbers(*parameter.shape)
            if parameter.trained:
                parameters[name.split(".")[1]] = (named, name)
        if isinstance(named.layer, models.Unembedding):
            shape = (named.layer.vocabulary, named.input_shape[-1])
            weights[TIED_WEIGHT] = 0.1 * numbers(*shape)
            parameters["weight"] = (named, TIED_WEIGHT)
    run = Pass(weights or {"": np.zeros(1)}, training=True)
    output, back = forward_all(part.layers, inputs(part), run)
    of_input = back(numbers(*output.shape, phase=1))
    gradients = {
        name: (named, run.gradients[full_name]) for name, (named, full_name) in parameters.items()
    }
    return output, gradients | ({"input": (None, of_input)} if part.before else {})


def inputs(part):
    shape, vocabulary = part.layers[0].input_shape, part.whole.model.vocabulary
    if vocabulary and not part.before:
        return whole_numbers(vocabulary, BATCH, *shape, dtype=np.int32)
    return numbers(BATCH, *shape)


def bound_of(framework, part):
    kinds = IN_FLOAT32.get(framework, ())
    is_float32 = any(isinstance(named.layer, kinds) for named in part.layers)
    return FLOAT32_BOUND if is_float32 else BOUND


def agrees(found, expected, bound, whole=0.0):
    """Compare arrays. whole: the norm of all gradients, of which one may be rounding alone."""
    assert found.shape == expected.shape
    scale = max(np.linalg.norm(expected), NEGLIGIBLE * whole)
    assert np.linalg.norm(found - expected) <= bound * scale


def norm(arrays):
    return np.linalg.norm([np.linalg.norm(array) for array in arrays])


def of_workload(adapter, part, output_shape):
    """Return the gradients of the adapter's own workload of the layers alone, by name."""
    layers = tuple(named.layer for named in part.layers)
    changes = {"layers": layers, "input_shape": part.layers[0].input_shape, "loss": GivenGradient()}
    alone = replace(part.whole.model, **changes)
    workload = adapter.build(Job(alone, "cpu", THREADS, "float64"))
    workload.load_weights({n: 0.1 * numbers(*p.shape) for n, p in alone.parameters.items()})
    workload.place(ArrayBatches(inputs(part)[None], numbers(*output_shape, phase=1)[None]))
    return {name.split(".")[1]: array for name, array in workload.backward_epoch()().items()}


@pytest.mark.short(adapter_name=("torch",))
@pytest.mark.parametrize(("model", "part"), LAYERS)
def test_a_layer_is_the_references_and_the_workloads(program, adapter, adapter_name, model, part):
    found, (output, expected) = program(model, part), reference(part)
    bound = bound_of(adapter_name, part)
    agrees(of_batch(adapter_name, found["output"]), output, bound)
    gradients = found["gradients"]
    if not isinstance(gradients, dict):
        gradients = dict(zip(expected, gradients, strict=True))
    assert list(gradients) == list(expected)
    own = {
        name: of_parameter(adapter_name, named, gradients[name], array.shape)
        if named
        else of_batch(adapter_name, gradients[name])
        for name, (named, array) in expected.items()
    }
    whole = norm(array for _, array in expected.values())
    for name, (_, array) in expected.items():
        agrees(own[name], array, bound, whole)
    if any(p.trained for named in part.layers for p in named.parameters.values()):
        for name, array in of_workload(adapter, part, output.shape).items():
            agrees(own[name], array, bound, whole)


RUNNING_MEAN = {
    "torch": lambda found: found["batchnorm2"].running_mean,
    "jax": lambda found: found["state"]["mean"][...].astype(np.float64),  # Flax has float32
    "keras": lambda found: found["batchnorm2"].moving_mean,
    "flux": lambda found: found["batchnorm2"].μ,
    "lux": lambda found: found["states"].running_mean,
}
"""Where a program holds the running mean of its batch norm."""
UPDATED = {"flux": WARM_UP + CALLS + 1, "lux": 1}
"""How often a program updates it, if not in each call that is warm-up or timed: Flux's calls the
layer once more for the sums, Lux's starts each call from the same states.
"""


def test_a_batch_norm_has_the_momentum_of_the_description(program, adapter_name):
    """Its outputs in training do not show it: the running mean does, which starts at 0."""
    model = SMALL_MODELS["normed"]
    part = find_part(model, "batchnorm2")
    momentum = part.layers[0].layer.momentum
    found = program(model, part)
    calls = UPDATED.get(adapter_name, WARM_UP + CALLS)
    expected = (1 - momentum**calls) * inputs(part).mean(0)
    agrees(as_array(adapter_name, RUNNING_MEAN[adapter_name](found)), expected, 1e-6)


@pytest.mark.short(adapter_name=("torch",))
@pytest.mark.parametrize(("model", "part"), DROPPED)
def test_a_dropout_is_one(program, adapter_name, model, part):
    """Its output and its gradient have the same values, each by a mask with the rate of zeros."""
    found = program(model, part)
    (named,) = part.layers
    of_input = found["gradients"][0] if "gradients" in found else None
    of_input = found.get("x_grad", found.get("x_gradient", of_input))
    of_input = found["x"].grad if of_input is None else of_input
    output, gradient = of_batch(adapter_name, found["output"]), of_batch(adapter_name, of_input)
    x, rate, mask = inputs(part), named.layer.rate, gradient != 0
    assert abs(mask.mean() - (1 - rate)) < 5 * (rate / mask.size) ** 0.5
    agrees(output, x * mask / (1 - rate), 1e-6)
    agrees(gradient, numbers(*x.shape, phase=1) * mask / (1 - rate), 1e-6)


@pytest.mark.parametrize(("model", "part"), LOSSES)
def test_a_loss_is_the_references(program, adapter_name, model, part):
    found, work = program(model, part), part.whole.model
    outputs, shape = numbers(BATCH, *work.output_shape), (BATCH, *work.label_shape)
    labels = (
        whole_numbers(work.classes, *shape, dtype=np.int64)
        if work.classes
        else 0.5 * numbers(*shape)
    )
    value, gradient = loss_and_gradient(work.loss, outputs, labels)
    assert float(as_array(adapter_name, found["value"])) == pytest.approx(value, rel=BOUND)
    own = found["gradients"] if "gradients" in found else [found["gradient"]]
    own = own["outputs"] if isinstance(own, dict) else own[0]
    agrees(as_array(adapter_name, own), gradient, BOUND)


@pytest.mark.short(adapter_name=("torch",))
@pytest.mark.parametrize(("model", "part"), OPTIMIZERS)
def test_an_optimizer_is_the_references(program, adapter_name, model, part):
    if isinstance(model.optimizer, OWN_FORMULA.get(adapter_name, ())):
        model = replace(model, optimizer=replace(model.optimizer, epsilon=1e-12))
        part = find_part(model, OPTIMIZER)
    optimizer = model.optimizer
    shapes = {n: p.shape for n, p in model.parameters.items() if p.trained}
    parameters = {name: 0.1 * numbers(*shape) for name, shape in shapes.items()}
    gradients = {name: numbers(*shape, phase=1) for name, shape in shapes.items()}
    state = State()
    totals = []
    for step in range(UPDATES):
        for name, gradient in clip(gradients, optimizer.clip_norm).items():
            change = update(optimizer, gradient, state.setdefault(name, {}), step)
            decay = optimizer.weight_decay_of(model.parameters[name]) * parameters[name]
            parameters[name] = parameters[name] - optimizer.rate(step) * (change + decay)
        totals.append(sum(np.abs(array).sum() for array in parameters.values()))
    found = program(model, part)
    bound = OPTIMIZER_BOUND.get(adapter_name, 1e-7)
    total = found.get("total", found.get("after_first"))
    assert float(as_array(adapter_name, total)) == pytest.approx(totals[0], rel=bound)
    own = found["variables"] if "variables" in found else found["parameters"]
    counts = Counter(array.shape for array in map(partial(as_array, adapter_name), own))
    assert counts == Counter(shapes.values())
    expected = sorted(parameters.values(), key=lambda array: array.shape)
    arrays = sorted((as_array(adapter_name, array) for array in own), key=lambda array: array.shape)
    for mine, array in zip(arrays, expected, strict=True):
        agrees(mine, array, bound)


def test_a_dropout_before_the_first_weights_has_no_sums(program, capsys):
    model = replace(SMALL_MODELS["fitted"], layers=(models.Dropout(0.5), models.Dense(3)))
    (part, *_) = parts(model)
    assert part.name == "dropout1, dense1"
    program(model, part)
    assert "gradient of" not in capsys.readouterr().out


def test_a_loss_that_a_program_cannot_have_is_named(adapter):
    model = replace(SMALL_MODELS["plain"], loss=GivenGradient())
    with pytest.raises(NotImplementedError, match="unsupported loss for a program in"):
        adapter.part_program(find_part(model, LOSS), model, BATCH, THREADS)


FRAMEWORKS = {
    "torch": {"torch"},
    "jax": {"jax", "flax", "optax"},
    "keras": {"keras", "tensorflow"},
    "flux": {"Flux"},
    "lux": {"Lux", "NNlib", "OneHotArrays", "Optimisers", "Zygote"},
}
STANDARD = {"os", "time", "numpy", "LinearAlgebra", "Printf", "Random", "Statistics"}
"""NumPy, and what a program needs of the standard library."""


def imported(text, suffix):
    """Return the packages that a program imports."""
    if suffix == ".jl":
        named = re.findall(r"^using ([^:\n]+)", text, re.MULTILINE)
        return {name for names in named for name in names.split(", ")}
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_programs_are_formatted_and_need_their_framework_alone(framework, tmp_path):
    """As ruff formats by default; Julia's lines fit into JuliaFormatter's 92 characters."""
    adapter = adapters.get(framework)
    catalogue = [models.get(name) for name in models.names()]
    for model in (*catalogue, *SMALL_MODELS.values()):
        for part in parts(model):
            text = adapter.part_program(part, model, model.batch_size, THREADS)
            name = f"{model.name}_{part.name}"
            found = imported(text, adapter.program_suffix)
            assert found <= STANDARD | FRAMEWORKS[framework], name
            assert found & FRAMEWORKS[framework], name
            assert text.isascii() or isinstance(part.layers[0].layer, models.BatchNorm)  # γ and β
            if adapter.program_suffix == ".jl":
                assert max(map(len, text.splitlines())) <= 92, name
            else:
                (tmp_path / f"{name}.py").write_text(text)
    command = ["ruff", "format", "--isolated", "--diff", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_programs_of_the_lenet_are_short(adapter, lenet):
    for part in parts(lenet)[:-1]:  # the optimizer's has a line for each shape
        text = adapter.part_program(part, lenet, lenet.batch_size, THREADS)
        assert len(text.splitlines()) <= 46, part.name
