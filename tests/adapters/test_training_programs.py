"""An adapter's program that trains a model has the losses of the adapter's own workload in float32,
and in Julia those of the NumPy reference in float64. --adapters names others.
"""

import gc
import os
import re
import runpy
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples import write_cifar
from small_models import SMALL_MODELS

from crossbench import adapters, data, models
from crossbench.adapters.reference import ReferenceWorkload
from crossbench.data.sources import CIFAR10, IMDB, Text, TinyShakespeare
from crossbench.engine.assignment import Assignment, epoch_batches, save_arrays
from crossbench.engine.parity.tensors import cast
from crossbench.models.shortened import shortened
from crossbench.programs.program import write_arrays
from crossbench.source.training_programs import Training
from crossbench.workload import Job

BATCH, STEPS, THREADS, SEED = 4, 4, 2, 0
BOUND = 1e-9
"""How far the losses in float64 may be from the reference's, relative to them."""
ROW_BOUND = 1e-5
"""How far those in float32 may be from the row's, which may round in another order."""

ROWS_OWN = ("torch", "jax", "keras")
"""Frameworks whose rows run the program's module."""

pytestmark = pytest.mark.training_programs


def small(model):
    """Return a model that takes seconds, with the catalogue's layers, loss and optimizer."""
    model = shortened(model)
    if isinstance(model.data, IMDB):
        words = min(model.data.words, 500)
        model = replace(model, data=replace(model.data, words=words))
    return model


def without_dropouts(model):
    """Return the model without what the reference would draw other masks for."""

    def kept(layers):
        return tuple(
            replace(layer, branches=tuple(map(kept, layer.branches)))
            if isinstance(layer, models.Branches)
            else layer
            for layer in layers
            if not isinstance(layer, models.Dropout)
        )

    return replace(model, layers=kept(model.layers))


def published(model, directory):
    """Write small data in the published format, and return where it is; None if there is none."""
    match model.data:
        case CIFAR10():
            return write_cifar(directory / "cifar")
        case Text() | TinyShakespeare():
            path = directory / "text.txt"
            letters = "the Quick fox\r\nß"
            if model.vocabulary and not model.for_vocabulary:  # it takes no other one
                letters = "abcdefghijklmnopqrstuvwxyz"[: model.vocabulary]
            path.write_bytes("".join(np.random.default_rng(1).choice([*letters], 3_000)).encode())
            return path
    return None


class Case:
    """Holds a training of a small model with its data, in a directory with its program."""

    def __init__(self, adapter, name, model, directory, variant="idiomatic"):
        self.adapter = adapter
        path = published(model, directory)
        dataset = data.load(model.data, str(path or "synthetic"), SEED, model.example_shapes)
        fitted = model.with_vocabulary(dataset.vocabulary)
        self.model = replace(fitted, batch_size=BATCH)
        save_arrays(dataset, directory)
        job = Job(self.model, "cpu", THREADS, "float32", variant)
        self.assignment = Assignment(name, job, directory, BATCH, STEPS, SEED)
        self.training = Training(
            self.model,
            variant,
            "cpu",
            THREADS,
            BATCH,
            STEPS,
            test_examples=10,
            seed=SEED,
            data=str(path) if isinstance(model.data, CIFAR10) else None,
            weights=f"weights_{name}{adapter.arrays_suffix}",
            examples=f"data{adapter.arrays_suffix}",
        )
        self.weights = self.model.initial_weights(SEED)
        arrays = adapter.programs.initial_arrays(self.training, self.weights)
        write_arrays(directory / self.training.weights, arrays)
        if arrays := adapter.programs.example_arrays(self.training, dataset):
            write_arrays(directory / self.training.examples, arrays)
        self.program = directory / f"train_{name}{adapter.program_suffix}"
        self.program.write_text(adapter.programs.training_program(self.training))

    def batches(self):
        return epoch_batches(self.assignment)

    def reference_losses(self):
        job = replace(self.assignment.job, dtype="float64")
        workload = ReferenceWorkload(job)
        workload.load_weights(cast(self.weights, "float64"))
        workload.place(self.batches())
        return workload.train_epoch()

    def row_losses(self):
        workload = self.adapter.build(self.assignment.job)
        workload.load_weights(self.weights)
        workload.place(self.batches())
        return workload.train_epoch()


FOR_A_PROCESS = ("tf.config.threading", 'jax.config.update("jax_platforms"', "os.environ")
"""How the lines begin that only a process's first program may have, or that others would feel."""


def run_python(program, *words):
    """Return the losses of the program's last epoch."""
    lines = program.read_text().splitlines(keepends=True)
    program.write_text("".join(line for line in lines if not line.startswith(FOR_A_PROCESS)))
    before = sys.argv
    sys.argv = [str(program), *words]
    try:
        return np.array(runpy.run_path(str(program), run_name="__main__")["losses"])
    finally:
        sys.argv = before


def run_julia(program, *words):
    """Return the same; Julia starts with the row's threads: BLAS has all of them beside one alone,
    and other sums.
    """
    os.environ |= adapters.get("flux").environment("cpu", THREADS)
    from juliacall import Main

    module = Main.seval("Module()")
    Main.seval("(words) -> (empty!(ARGS); append!(ARGS, words))")(Main.collect(words))
    Main.Base.include(module, str(program))
    return np.asarray(Main.collect(module.losses), np.float64)


RUNNERS = {"flux": run_julia, "lux": run_julia}
"""What runs the programs of frameworks that have a dtype; the others are run in Python."""


@pytest.fixture
def run(adapter_name):
    """Return a function that runs a program, and returns the losses of its last epoch."""
    environment = dict(os.environ)
    yield RUNNERS.get(adapter_name, run_python)
    os.environ.clear()
    os.environ.update(environment)
    with suppress(ImportError):
        import jax

        jax.config.update("jax_enable_x64", False)
    if "keras" in sys.modules:
        forget_keras_settings()
    gc.collect()


def forget_keras_settings():
    """Undo what a row or a program sets for its process: the names of layers, which are numbered,
    and dtypes.
    """
    import keras
    from keras.src.backend.common import dtypes

    keras.utils.clear_session()
    if keras.config.backend() == "tensorflow":
        dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"


SHORT = ("lenet", "mnist_cnn", "mlp7_bn", "text_lstm", "gpt_char")
"""Models that are short tests of an adapter that is named by --adapters."""
LOOPS = (*SHORT, "cifar_cnn", "imdb_bilstm", "resnet63")
"""Models that have every data source, augmentation, task and form of the loop of a program, and a
batch norm in a block: the loop is what is not the row's own in ROWS_OWN."""
LONG = [pytest.param(name, marks=pytest.mark.long) for name in models.names() if name not in SHORT]


@pytest.mark.short(name=("lenet",))
@pytest.mark.parametrize("name", [*SMALL_MODELS, *SHORT, *LONG])
def test_the_losses_of_each_model(run, adapter, adapter_name, name, tmp_path):
    """The small models have every layer, loss and optimizer, which the catalogue lacks."""
    if adapter_name in ROWS_OWN and name not in LOOPS:
        pytest.skip("the row runs the program's module, and another model has this loop")
    model = SMALL_MODELS[name] if name in SMALL_MODELS else small(models.get(name))
    case = Case(adapter, adapter_name, without_dropouts(model), tmp_path)
    if adapter_name not in RUNNERS:  # programs in Python compute in float32 alone
        found = run(case.program, "--epochs", "1")
        np.testing.assert_allclose(found, case.row_losses(), rtol=ROW_BOUND, atol=0)
        return
    found = run(case.program, "--dtype", "float64", "--epochs", "1")
    np.testing.assert_allclose(found, case.reference_losses(), rtol=BOUND, atol=0)


@pytest.mark.short(adapter_name=("torch",))
@pytest.mark.parametrize(
    "name",
    ["mnist_cnn", *(pytest.param(m, marks=pytest.mark.long) for m in ("lenet", "imdb_bilstm"))],
)
def test_the_losses_are_the_rows(run, adapter, adapter_name, name, tmp_path):
    """Of models with dropouts too, which the test above leaves out."""
    case = Case(adapter, adapter_name, small(models.get(name)), tmp_path)
    found = run(case.program, "--epochs", "1")
    np.testing.assert_allclose(found, case.row_losses(), rtol=ROW_BOUND, atol=0)


@pytest.mark.parametrize("framework", ["torch", "jax", "flux"])
def test_the_code_of_a_tuned_variant_is_named(framework):
    training = Training(models.get("lenet5"), "tuned", "cpu", 2, 4, 4, 4, 0, None, True, "w", "d")
    with pytest.raises(NotImplementedError, match=r"the code of .*:tuned is in") as error:
        adapters.get(framework).programs.training_program(training)
    root = Path(__file__).parents[2]
    assert (root / str(error.value).rpartition(" ")[2]).is_file()


WRONG = {("torch", "compile", "lenet")}
"""Rows that a run does not rank: of batches of 4, TorchInductor 2.13 computes other gradients."""


def variants_with_programs(adapter):
    """Yield the variants that can run here, and that a program in Python can be written for."""
    for name, variant in adapter.variants.items():
        is_available = adapter.of_variant(name).available("cpu") is None
        has_program = name != "tuned" and adapter.program_suffix == ".py"
        if "cpu" in variant.devices and is_available and has_program:
            yield name


@pytest.mark.long
@pytest.mark.parametrize("name", ["lenet", "text_lstm"])
def test_a_program_of_each_variant_has_the_references_losses(adapter, adapter_name, name, tmp_path):
    """In a process of its own, as its user starts it."""
    for variant in variants_with_programs(adapter):
        if (adapter_name, variant, name) in WRONG:
            continue
        directory = tmp_path / variant
        directory.mkdir()
        case = Case(adapter, adapter_name, small(models.get(name)), directory, variant)
        command = [sys.executable, case.program, "--epochs", "1"]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        shown = re.search(r"losses (.*)", run.stdout)[1].split()
        losses = case.reference_losses()
        np.testing.assert_allclose(np.float64(shown), [*losses, losses[-1]], rtol=ROW_BOUND)
