"""Keras: one backend for each process, whatever the user has set; the suites of every adapter.

The suites run in a process of their own for each backend. By hand, all of a suite on another
backend: pytest tests/adapters/test_conformance.py -n 0 --adapters keras:jax.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

import crossbench
from crossbench import adapters, models
from crossbench.adapters.keras.program import training_source
from crossbench.commands import doctor

ROOT = Path(__file__).parents[2]
BACKENDS = ("keras", "keras:jax", "keras:torch")


def available(name):
    framework, variant = adapters.split(name)
    if reason := adapters.get(framework, variant or "idiomatic").available("cpu"):
        pytest.skip(reason)


def suite(name, *words):
    """Run tests of every adapter in a process of their own."""
    available(name)
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", "--adapters", name, *words]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stdout[-5000:]
    assert " passed" in run.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("test_conformance.py", ()),
        ("test_planted_faults.py", ()),
        ("test_programs.py", ("-m", "not long")),
        ("test_training_programs.py", ("-m", "")),
    ],
)
def test_the_suite_of_every_adapter(file, words):
    suite("keras", f"tests/adapters/{file}", *words)


@pytest.mark.long
@pytest.mark.parametrize("name", ["keras:jax", "keras:torch"])
def test_on_another_backend_it_agrees_with_the_reference(name):
    """Every layer, loss and optimizer; the rest of the suite by hand."""
    others = "lenet or normed or positive or lettered or gated]"
    chosen = f"agrees_with_the_reference and not ({others})"
    suite(name, "tests/adapters/test_conformance.py", "-k", chosen)


def python(program, check=True, **environment):
    """Run a program in a process of its own; return what it prints, or its errors without check."""
    command, environment = [sys.executable, "-c", program], os.environ | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout.strip() if check else done.stderr


@pytest.mark.long
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_backend_needs_no_other(backend):
    available(f"keras:{backend}")
    python(
        "import sys\n"
        f"others = {{'tensorflow', 'jax', 'torch'}} - {{'{backend}'}}\n"
        "sys.modules |= dict.fromkeys(others)\n"  # their import fails
        "import numpy as np\n"
        "from crossbench import adapters, models\n"
        "from crossbench.engine.batches import ArrayBatches\n"
        "from crossbench.workload import Job\n"
        "model = models.get('mnist_mlp')\n"
        f"adapter = adapters.get('keras', '{backend}')\n"
        f"workload = adapter.build(Job(model, 'cpu', 1, 'float32', '{backend}'))\n"
        "workload.load_weights(model.initial_weights(0))\n"
        "batches = np.zeros((1, 4, *model.input_shape), 'f'), np.zeros((1, 4), int)\n"
        "workload.place(ArrayBatches(*batches))\n"
        "workload.train_epoch()\n",
        **adapters.get("keras", backend).required_environment("cpu"),
    )


@pytest.mark.long
def test_no_epoch_builds_the_kernels_of_tensorflow_anew():
    available("keras")
    found = python(
        "from crossbench import adapters, models\n"
        "from crossbench.workload import Job\n"
        "model = models.get('lenet5')\n"
        "workload = adapters.get('keras').build(Job(model, 'cpu', 1, 'float32'))\n"
        "from tensorflow.python import pywrap_tfe\n"
        "pywrap_tfe.TFE_ContextClearCaches = lambda _: print('the kernel cache is emptied')\n"
        "workload.load_weights(model.initial_weights(0))\n"
    )
    assert found == ""


def test_clipping_beside_a_gru_is_not_supported_and_its_bias_does_not_decay():
    """The gradient of the bias that stays 0 would be in the norm, and it has two axes."""
    layers = (models.GRU(4), models.Dense(3))
    rule = models.AdamW(0.1, 0.9, 0.99, 1e-8, 0.1, matrices_only=True)
    model = models.Model("m", (5, 2), layers, models.SoftmaxCrossEntropy(), rule, 4, "the tests")
    assert 'or v.name == "bias"' in training_source(model, "tensorflow", False).module
    clipped = replace(model, optimizer=replace(rule, clip_norm=1.0))
    with pytest.raises(NotImplementedError, match="unsupported clipping beside a GRU"):
        training_source(clipped, "tensorflow", False)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mnist_mlp", "gpt_char", "imdb_fasttext", "cifar_cnn"])
def test_on_pytorch_all_variables_are_updated_at_once(name):
    """As Keras' own optimizers do there; each by itself takes many times as long."""
    available("keras:torch")
    found = python(
        "import keras\n"
        "from crossbench import models\n"
        "from crossbench.adapters.keras.program import training_source\n"
        "from crossbench.source.module import imported\n"
        f"model = models.get({name!r}).with_vocabulary(9)\n"
        "made = imported(training_source(model, 'torch', False).module)\n"
        "print(hasattr(made.optimizer, '_parallel_update_step'))\n",
        KERAS_BACKEND="torch",
        KERAS_HOME=os.devnull,
    )
    assert found == "True"


@pytest.mark.long
def test_each_row_has_its_backend_whatever_the_user_has_set(tmp_path):
    for name in BACKENDS:
        available(name)
    settings, file = tmp_path / ".keras" / "keras.json", tmp_path / "results.json"
    settings.parent.mkdir()
    other = {"backend": "torch", "floatx": "float16", "image_data_format": "channels_first"}
    settings.write_text(json.dumps(other | {"epsilon": 0.1}))
    asked = ["--frameworks", ",".join(BACKENDS), "--devices", "cpu", "--model", "lenet5"]
    asked += ["--rounds", "1", "--epochs", "3", "--batches", "2", "--json", str(file)]
    run = subprocess.run(
        [sys.executable, "-m", "crossbench", *asked],
        env=os.environ | {"HOME": str(tmp_path), "KERAS_BACKEND": "jax", "KERAS_MAX_EPOCHS": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(settings.read_text())["floatx"] == "float16"
    rows = crossbench.load(file)
    assert [r.details["backend"] for r in rows.results] == ["tensorflow", "jax", "torch"]
    assert all(r.parity.agrees for r in rows.results)
    assert all(rows.doubt(r) is None for r in rows.results)
    labels = [r.cell.label for r in rows.results]
    assert labels == ["Keras (TensorFlow)", "Keras (JAX)", "Keras (torch)"]


@pytest.mark.parametrize(
    ("name", "absent", "words"),
    [
        ("keras", {"keras", "tensorflow"}, "keras, tensorflow are not installed: pip install"),
        ("keras:jit", {"tensorflow"}, "tensorflow is not installed: pip install"),
        ("keras:jax", {"jax"}, "jax is not installed: pip install"),
        ("keras", {"jax", "torch"}, None),
        ("keras:jax", {"tensorflow", "torch", "flax"}, None),
        ("keras:torch", {"tensorflow", "jax"}, None),
    ],
)
def test_what_a_backend_misses_is_said_with_the_command(without, name, absent, words):
    without(absent)
    framework, variant = adapters.split(name)
    reason = adapters.get(framework, variant or "idiomatic").available("cpu")
    assert reason is None if words is None else words in reason


def test_a_process_has_one_backend():
    """Whoever asks for another one, in a script of their own, is told."""
    for name in ("keras", "keras:torch"):
        available(name)
    program = (
        "from crossbench import adapters, models\n"
        "from crossbench.workload import Job\n"
        "adapters.get('keras').build(Job(models.get('lenet'), 'cpu', 1, 'float32'))\n"
    )
    errors = python(program, check=False, KERAS_BACKEND="torch", KERAS_HOME=os.devnull)
    assert "Unavailable: Keras is on torch in this process, not on tensorflow" in errors


def test_the_doctor_lists_every_backend(without):
    without({"tensorflow"})
    frameworks, _, _ = doctor.report().partition("\nvariant")
    lines = [line.split() for line in frameworks.splitlines() if line.startswith("keras")]
    assert [line[0] for line in lines] == ["keras", "keras:jax", "keras:torch"]
    assert [line[1] for line in lines] == ["tensorflow", "ready", "ready"]  # is not installed


@pytest.fixture
def without(monkeypatch):
    """Return a function that hides installed packages, and shows the others as installed."""
    real = metadata.version

    def hide(absent):
        def version(package):
            if package in absent or package == "tensorflow-cpu":
                raise metadata.PackageNotFoundError(package)
            packages = ("keras", "tensorflow", "jax", "torch")
            return "2.0" if package in packages else real(package)

        monkeypatch.setattr(metadata, "version", version)

    return hide
