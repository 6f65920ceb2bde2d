"""Flux.jl and Lux.jl: what can be tested without Julia, always; the rest where a Julia is found.

Julia and torch do not share a process well, so the suites run over each in a pytest of their own.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

import pytest
from small_models import SMALL_MODELS

from crossbench import adapters, models, script
from crossbench.data.sources import Synthetic
from crossbench.in_julia import julia
from crossbench.in_julia.models_json import models_json
from crossbench.models.model import Model
from crossbench.workload import Unavailable

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("flux", "lux")
VARIABLES = ("PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT", "PYTHON_JULIAPKG_EXE")


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Puts a `julia` that does as the shell script says on the PATH, and takes others away."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def make(script=None):
        if script is not None:
            (tmp_path / "julia").write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / "julia").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        return str(tmp_path / "julia")

    return make


def test_a_julia_on_the_path_is_found(stand_in):
    stand_in()
    assert julia.find() is None
    assert adapters.get("flux").installed()["Julia"] == "downloaded on first use"
    exe = stand_in("echo julia version 1.10.8")
    assert julia.find() == (exe, "1.10.8")
    assert adapters.get("flux").installed()["Julia"] == f"1.10.8 ({exe})"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "is not a working Julia: --version exits with 3"),
        ("echo python 3", "is not a working Julia"),
        ("exec /bin/sleep 60", r"--version did not finish within 1 s"),
    ],
)
def test_a_julia_that_does_not_work_has_its_reason(stand_in, monkeypatch, script, reason):
    monkeypatch.setattr(julia, "ANSWER_SECONDS", 1)
    exe = stand_in(script)
    with pytest.raises(Unavailable, match=reason) as caught:
        julia.find()
    assert exe in str(caught.value)


def test_a_named_julia_that_is_not_there(stand_in, monkeypatch):
    stand_in("echo julia version 1.10.8")
    monkeypatch.setenv("PYTHON_JULIAPKG_EXE", "/not/there/julia")
    with pytest.raises(Unavailable, match="/not/there/julia is not an executable"):
        julia.find()


def test_the_versions_of_julias_packages_are_those_of_the_project(monkeypatch, tmp_path):
    monkeypatch.delenv("PYTHON_JULIACALL_PROJECT", raising=False)
    monkeypatch.setenv("PYTHON_JULIAPKG_PROJECT", str(tmp_path))
    packages = adapters.get("lux").packages
    assert julia.installed_versions(packages) == {}
    lines = ['[[deps.Lux]]\nversion = "1.31.4"', '[[deps.Zygote]]\nversion = "0.7.12"']
    (tmp_path / "Manifest.toml").write_text("\n".join([*lines, '[[deps.Flux]]\nversion = "1"']))
    assert julia.installed_versions(packages) == {"Lux": "1.31.4", "Zygote": "0.7.12"}
    (tmp_path / "Manifest.toml").write_text("not TOML")
    assert julia.installed_versions(packages) == {}


def test_versions_that_are_newer_than_the_tested_ones_are_named():
    packages = adapters.get("flux").packages
    tested = {"Flux": "0.16.10", "Julia": "1.10.8", "NNlib": "9.9", "juliacall": "9.9"}
    assert packages.untested(tested) == ""
    assert packages.untested(tested | {"Flux": "0.16.9"}) == ""
    assert packages.untested(tested | {"Flux": "0.16.11"}) == "Flux 0.16.11"
    newer = {"Flux": "0.17.0-DEV", "Julia": "1.12.1"}
    assert packages.untested(newer) == "Flux 0.17.0-DEV, Julia 1.12.1"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_threads_and_signals_are_set_before_juliacall(framework):
    environment = adapters.get(framework).environment("cpu", 3)
    assert environment["PYTHON_JULIACALL_THREADS"] == "3"
    assert environment["PYTHON_JULIACALL_HANDLE_SIGNALS"] == "yes"


@pytest.fixture
def without_network(monkeypatch, tmp_path):
    """Nothing can be downloaded, and nothing was before; juliapkg tries to."""
    monkeypatch.delenv("PYTHON_JULIAPKG_OFFLINE", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("PYTHON_JULIAPKG_PROJECT", str(tmp_path / "project"))


@pytest.fixture
def silent_server(monkeypatch):
    """A package server that takes connections and never says a word."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("JULIA_PKG_SERVER", address)
        yield address


SHORT_RUN = (
    *("--frameworks", "flux,reference", "--devices", "cpu", "--rounds", "1"),
    *("--model", "mlp7_relu", "--batches", "2", "--threads", "1"),
)


def python(*words, **options):
    """Run Python in a process of its own."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, **options)


def crossbench(*words, **options):
    return python("-m", "crossbench", *words, timeout=120, **options)


INSTALL = "import sys; from crossbench.adapters import get; get(sys.argv[1]).install('cpu')"


@pytest.mark.long
def test_a_package_server_that_never_answers_is_not_waited_for(
    stand_in, silent_server, monkeypatch, tmp_path
):
    """The stand-in asks the server as Pkg would, unless Pkg was told to leave it alone."""
    if reason := adapters.get("flux").available("cpu"):
        pytest.skip(reason)
    monkeypatch.setenv("PYTHON_JULIAPKG_PROJECT", str(tmp_path / "project"))
    stand_in(
        "test $1 = --version && echo julia version 1.10.8 && exit\n"
        'test -n "$JULIA_PKG_SERVER" && exec /bin/sleep 600\n'
        'case "$*" in *reachable_registries*) exit 1;; esac'
    )
    run = python("-c", INSTALL, "flux", timeout=100)
    last = run.stderr.strip().splitlines()[-1]
    assert "cannot be installed: the package server" in last
    assert f"{silent_server} does not answer" in last


@pytest.mark.long
@pytest.mark.usefixtures("without_network")
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "Julia is not installed and cannot be downloaded"),
        (
            "echo julia version 1.6.7",
            "Julia 1.6.7 .* cannot be used, and no other can be downloaded",
        ),
        (
            "test $1 = --version && echo julia version 1.10.8 && exit\nexit 1",
            "the packages for Julia 1.10.8 .* cannot be installed",
        ),
    ],
)
def test_without_julia_the_row_has_its_reason_and_the_others_run(stand_in, script, reason):
    if reason_to_skip := adapters.get("flux").available("cpu"):  # importing it would start Julia
        pytest.skip(reason_to_skip)
    stand_in(script)
    run = crossbench(*SHORT_RUN)
    assert run.returncode == 1, run.stderr
    (_, line) = " ".join(run.stdout.split()).split("! Flux.jl: did not run: ")
    assert re.search(reason, line)
    assert "NumPy reference" in run.stdout
    assert "Traceback" not in run.stdout


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Let juliapkg download nothing, as its user asked for."""
    if reason := adapters.get("flux").available("cpu"):
        pytest.skip(reason)
    monkeypatch.setenv("PYTHON_JULIAPKG_OFFLINE", "yes")
    monkeypatch.setenv("PYTHON_JULIAPKG_PROJECT", str(tmp_path / "project"))


def doctors_answers():
    """Return what `doctor` says of each framework on the CPU."""
    found = json.loads(crossbench("doctor", "--format", "json").stdout)["frameworks"]
    return {framework["name"]: framework["devices"]["cpu"] for framework in found}


LACKING = (
    "PythonCall, {} are not installed in the Julia project {}, and juliapkg must not download "
    "anything (PYTHON_JULIAPKG_OFFLINE=yes): unset that variable where there is a network"
)


@pytest.mark.long
@pytest.mark.usefixtures("offline")
def test_packages_that_must_not_be_downloaded_are_named_by_the_doctor_and_by_a_run(
    stand_in, tmp_path
):
    stand_in(
        "test $1 = --version && echo julia version 1.10.8 && exit\n"
        'case "$*" in\n'
        '*find_package*" PythonCall CrossBenchJulia CrossBenchFlux Flux")\n'
        "echo PythonCall; echo CrossBenchFlux; exit;;\n"
        '*find_package*" PythonCall CrossBenchJulia CrossBenchLux Lux MLUtils NNlib OneHotArrays '
        'Optimisers Zygote")\n'
        "echo PythonCall; echo Lux; exit;;\n"
        "esac\nexit 1"
    )
    answers = doctors_answers()
    assert answers["flux"].startswith(LACKING.format("CrossBenchFlux", "…/project"))
    assert answers["lux"].startswith(LACKING.format("Lux", "…/project"))
    run = crossbench(*SHORT_RUN)
    assert run.returncode == 1
    lacking = LACKING.format("CrossBenchFlux", tmp_path / "project")
    assert f"! Flux.jl: did not run: {lacking}" in " ".join(run.stdout.split())
    assert "this takes minutes" not in run.stderr
    assert "NumPy reference" in run.stdout


@pytest.mark.short(script=(None,))
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("test $1 = --version && echo julia version 1.10.8\nexit 0", "ready"),
        (None, "Julia is not installed and cannot be downloaded (PYTHON_JULIAPKG_OFFLINE=yes): "),
        (
            "test $1 = --version && echo julia version 1.10.8 && exit\necho no room >&2; exit 1",
            "…/julia cannot say which packages …/project has: no room",
        ),
    ],
)
def test_offline_the_doctor_says_what_julia_has(stand_in, script, answer):
    stand_in(script)
    answers = doctors_answers()
    assert answers["flux"].startswith(answer)
    assert answers["lux"].startswith(answer)


def test_the_project_is_juliapkgs(monkeypatch, tmp_path):
    state = pytest.importorskip("juliapkg.state").STATE
    assert str(julia._project()) == state["project"]
    monkeypatch.setenv("PYTHON_JULIACALL_PROJECT", str(tmp_path))
    flux, lux = (adapters.get(name) for name in FRAMEWORKS)
    assert flux.left_out() == (
        "Flux.jl is installed on the first run that names it: --frameworks flux"
    )
    (tmp_path / "Project.toml").write_text('[deps]\nCrossBenchLux = "7e8bdb27"\n')
    assert flux.left_out()
    assert lux.left_out() is None


@pytest.mark.usefixtures("without_network")
def test_only_the_framework_that_was_asked_for_is_installed(stand_in, monkeypatch):
    """Asking what is missing adds nothing to what juliapkg installs."""
    juliapkg_deps = pytest.importorskip("juliapkg.deps")
    stand_in("echo julia version 1.10.8")
    state = juliapkg_deps.STATE
    folder = Path(os.environ["PYTHON_JULIAPKG_PROJECT"])
    monkeypatch.setitem(state, "project", str(folder))
    monkeypatch.setitem(state, "deps", str(folder / "juliapkg.json"))
    monkeypatch.setitem(state, "meta", str(folder / "meta.json"))
    monkeypatch.setitem(state, "resolved", False)
    for framework in FRAMEWORKS:
        assert "this takes minutes" in adapters.get(framework).to_install("cpu")
    assert juliapkg_deps.load_cur_deps() == {}
    gone = {"uuid": str(uuid.uuid4()), "dev": True, "path": str(folder / "gone")}
    juliapkg_deps.add("CrossBenchFlux", **gone)
    julia.add_packages(adapters.get("lux").packages, "gpu")
    packages = juliapkg_deps.load_cur_deps()["packages"]
    of_programs = {"MLUtils", "NNlib", "OneHotArrays"}
    assert (
        set(packages) == {"CrossBenchLux", "Lux", "LuxCUDA", "Optimisers", "Zygote"} | of_programs
    )
    path = Path(packages["CrossBenchLux"]["path"])
    project = tomllib.loads((path / "Project.toml").read_text())
    assert packages["CrossBenchLux"]["uuid"] == project["uuid"]
    for name in ("Lux", "Optimisers", "Zygote"):
        assert packages[name]["uuid"] == project["deps"][name]


@pytest.fixture(params=FRAMEWORKS, scope="session")
def framework(request):
    return request.param


@pytest.fixture(scope="session")
def environment(framework):
    """The environment of a process that may start Julia; skips where there is none to start."""
    adapter = adapters.get(framework)
    if reason := adapter.available("cpu"):
        pytest.skip(reason)
    if not any(name in os.environ for name in VARIABLES) and shutil.which("julia") is None:
        pytest.skip("no Julia on the PATH, and none named by PYTHON_JULIAPKG_EXE")
    environment = adapter.environment("cpu", 2) | os.environ
    ready = python("-c", INSTALL, framework, env=environment)
    if ready.returncode and adapter.packages.own in ready.stderr.rpartition("Traceback")[0]:
        pytest.fail(ready.stderr)  # the package itself, not what it needs
    if ready.returncode:
        pytest.skip(f"Julia's packages are not available: {ready.stderr.strip().splitlines()[-1]}")
    return environment


@pytest.mark.parametrize(
    "suite", ["conformance", "programs", "training_programs", "planted_faults"]
)
def test_the_suite_of_every_adapter(framework, environment, suite):
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", "--adapters", framework]
    words = ["-m", "pytest", *words, f"tests/adapters/test_{suite}.py"]
    run = python(*words, env=environment, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
    assert "SKIPPED" not in run.stdout


@pytest.fixture
def run_julia(environment):
    """Return a function that runs a program of Julia, in the project with the framework."""
    program = (
        "import juliapkg; juliapkg.resolve(); print(juliapkg.executable(), juliapkg.project())"
    )
    found = python("-c", program, env=environment, check=True)
    exe, project = found.stdout.splitlines()[-1].split()

    def run(file, *arguments):
        words = [exe, "--startup-file=no", "-t2", f"--project={project}", str(file), *arguments]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def made(name, *layers, shape):
    """Return a model of random numbers and classes."""
    adam = models.Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8)
    loss = models.SoftmaxCrossEntropy()
    return Model(name, shape, layers, loss, adam, 10, "the tests", Synthetic())


def models_of_julias_tests():
    """Return the small models, one without convolutions, one that drops nothing, and a long one."""
    norm = models.BatchNorm(epsilon=1e-3, momentum=0.8)
    hidden = (models.Dense(7), norm, models.ReLU(), models.Dropout(0.4), models.Dense(6))
    return [
        *SMALL_MODELS.values(),
        made("dense", *hidden, models.Dropout(0.25), models.Dense(3), shape=(6,)),
        made("still", models.Dropout(0.0), models.Dense(2), shape=(50,)),
        made("long", *(models.Dense(2 + i) for i in range(1, 27)), norm, shape=(2,)),
    ]


def test_the_julia_packages_own_tests(framework, run_julia, tmp_path):
    workload = adapters.get(framework).workload
    package, file = workload.packages.own, tmp_path / "models.json"
    file.write_text(models_json(workload.dialect, models_of_julias_tests()))
    assert f"{package} |" in run_julia(ROOT / "julia" / package / "test" / "runtests.jl", file)


GRADIENTS = {
    "flux": """
expected = Flux.gradient(m -> sum(m(x) .* y), model)
found = last(compute_gradients(model, x, y))
arrays = collect(zip(Flux.trainables(expected), Flux.trainables(found)))
""",
    "lux": """
expected = Zygote.gradient(ps -> sum(first(model(x, ps, st)) .* y), ps)
found = last(compute_gradients(model, ps, st, x, y))
leaves(gradients) = filter(!isnothing, Lux.Functors.fleaves(gradients))
arrays = collect(zip(leaves(expected), leaves(found)))
""",
}
"""Statements behind a program: its gradients, and those of the sum of the outputs times `y`."""
AGREE = 'println(length(arrays), " ", all(a ≈ b for (a, b) in arrays))'


def test_the_programs_of_a_layer_run_in_julia(framework, run_julia, tmp_path):
    """Their gradients are those for the gradient of the outputs that they draw."""
    found = script(model="lenet5", layer="conv2", batch_size=8, frameworks=framework, out=tmp_path)
    assert [program.without_part for program in found] == [False, True]
    for program, arrays in zip(found, (4, 2), strict=True):  # two for each convolution
        with program.path.open("a") as file:
            file.write(f"{GRADIENTS[framework]}{AGREE}\n")
        printed = run_julia(program.path)
        pattern = rf"\d+\.\d{{3}} ms, (Flux|Lux) [\d.]+\n{arrays} true\n"
        assert re.fullmatch(pattern, printed), printed


TRAINED_BY = {
    "flux": ("withgradient", "logitcrossentropy"),
    "lux": ("single_train_step", "CrossEntropyLoss"),
}
"""Functions of a step that each framework has its own of."""
EPOCHS = """
import sys
import numpy as np
from crossbench import adapters, models
from crossbench.engine.batches import ArrayBatches
from crossbench.workload import Job
lenet, random = models.get("lenet"), np.random.default_rng(0)
workload = adapters.get(sys.argv[1]).build(Job(lenet, "cpu", 2, "float32"))
workload.load_weights(lenet.initial_weights(0))
inputs = random.random((1, 8, 3, 32, 32), np.float32)
workload.place(ArrayBatches(inputs, random.integers(0, 10, (1, 8))))
print("the first epoch", file=sys.stderr, flush=True)
workload.train_epoch()
workload.load_weights(lenet.initial_weights(0))
print("a further epoch", file=sys.stderr, flush=True)
workload.train_epoch()
"""


def test_the_first_step_was_compiled_when_the_package_was_installed(framework, environment):
    """Only the glue to Python and to the threads is left: no layer, no gradient."""
    traced = environment | {"PYTHON_JULIACALL_TRACE_COMPILE": "stderr"}
    run = python("-c", EPOCHS, framework, env=traced, check=True)
    before, _, after = run.stderr.partition("the first epoch")
    assert "precompile(" in before  # it is traced
    compiled, _, further = after.partition("a further epoch")
    assert "precompile(" not in further
    for function in ("maxpool", "Zygote", *TRAINED_BY[framework]):
        assert function not in compiled


def test_it_runs_beside_another_framework(framework, environment, cifar_directory):
    words = ["--frameworks", f"{framework},reference", "--devices", "cpu", "--rounds", "2"]
    words += ["--batch-size", "50", "--data", str(cifar_directory), "--details"]
    run = python("-m", "crossbench", *words, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert {"flux": "Flux 0.16", "lux": "Lux 1."}[framework] in run.stdout
    assert "compile s" in run.stdout


@pytest.mark.parametrize(
    ("framework", "drawing"), [("flux", ["dropout1", "dropout2"]), ("lux", ["dropout2"])]
)
def test_lux_makes_no_dropout_of_the_rate_0(framework, drawing, tmp_path):
    """Neither its row nor its program may seed one: the names are in the order of those it has."""
    model = made("m", models.Dropout(0.0), models.Dropout(0.5), models.Dense(2), shape=(4,))
    adapter = adapters.get(framework)
    assert adapter.workload.dialect(model, "cpu").row()["dropouts"] == drawing
    (program,) = script(model=model, frameworks=framework, batches=1, out=tmp_path)
    assert program.source.count("Xoshiro(") + program.source.count("seed!(") == len(drawing) + (
        framework == "lux"  # of Lux.setup
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_models_that_julia_precompiles_are_the_catalogues(framework):
    """Where it fails: the command in the module's docstring writes the file anew."""
    workload = adapters.get(framework).workload
    found = (ROOT / "julia" / workload.packages.own / "src" / "models.json").read_text()
    assert found == models_json(workload.dialect) + "\n"
