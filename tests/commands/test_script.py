"""`script`: which programs are written, where, and that those of several frameworks agree."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from samples import comparison, result
from scripting import files, invoke
from small_models import DROPPED, PLAIN, named

import crossbench
from crossbench import adapters, models
from crossbench.engine.parts import described
from crossbench.inputs.errors import ProgramError, ResultsError, SpecError
from crossbench.models.parts import parts
from crossbench.results.parts import PartResult, PartTime
from crossbench.results.reference import Reference

LENET5 = models.get("lenet5")


def test_a_program_is_written_for_each_framework_with_a_line(capsys, tmp_path, monkeypatch):
    """By default into the working directory."""
    monkeypatch.chdir(tmp_path)
    words = ["--model", "lenet", "--frameworks", "torch,jax,flux,keras,lux", "--layer", "conv1"]
    status, out, err = invoke(capsys, *words)
    assert (status, err) == (0, "")
    suffixes = {"flux": "jl", "jax": "py", "keras": "py", "lux": "jl", "torch": "py"}
    assert files(tmp_path) == [f"conv1_{name}.{suffix}" for name, suffix in suffixes.items()]
    assert out.splitlines()[0] == "conv1_torch.py: conv1 of lenet in PyTorch, batch size 1,000"
    assert len(out.splitlines()) == 5
    for path in tmp_path.iterdir():
        assert "1,000 random examples" in " ".join(path.read_text().split())


def test_layers_that_are_timed_together_are_both_in_the_name(tmp_path):
    program, *_ = crossbench.script(
        model="mnist_mlp", layer="flatten1", frameworks="torch", out=tmp_path
    )
    assert program.path == tmp_path / "flatten1_dense1_torch.py"
    assert program.path.read_text() == program.source


def test_a_model_from_a_file_and_a_framework_that_is_named_twice(tmp_path):
    program, without = crossbench.script(
        model=named("PLAIN"), layer="maxpool1", frameworks=["flux", "flux:idiomatic"], out=tmp_path
    )
    assert program.path.name == "maxpool1_flux.jl"
    assert without.path.name == "maxpool1_flux_without.jl"
    assert "MaxPool" not in without.source
    assert "MaxPool((2, 3); stride = 2)" in program.source


def test_without_frameworks_all_that_are_installed_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "crossbench.programs.choice.unavailable_reason",
        lambda name, *_: None if name in ("torch", "reference") else "not installed",
    )
    found = crossbench.script(layer="conv1", out=tmp_path)
    assert [program.framework for program in found] == ["torch"]
    monkeypatch.setattr("crossbench.programs.choice.unavailable_reason", lambda *_: "not installed")
    with pytest.raises(SpecError, match="no framework that has programs is installed"):
        crossbench.script(layer="conv1", out=tmp_path)


ONE_BATCH = ["--model", "mlp7_relu", "--batches", "1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--layer", "slowest"], "layer slowest needs the results file of a run with layers"),
        (["--layer", "conv1", "--seed", "1"], "its own input, on the CPU: leave out seed"),
        (["--frameworks", "reference", *ONE_BATCH], "NumPy reference writes no programs"),
        (["--frameworks", "torch:tuned", *ONE_BATCH], "the code of torch:tuned is in crossbench/"),
        (["--layer", "conv1", "--frameworks", "torch:compile"], "torch:compile: a program of a"),
        (["--layer", "conv1", "--frameworks", "reference"], "reference writes no programs of"),
        (["--layer", "conv1", "--batch-size", "2,8"], "one batch size, not 2, 8: name one"),
        (["--layer", "conv1", "--out", "/dev/null/x"], "cannot be written: Not a directory"),
        (["--layer", "conv1", "--out", "nul\0"], "nul? cannot be written: "),
        (["/not/there.json"], "/not/there.json cannot be read: No such file or directory"),
        (["r.json", "--frameworks", "jax"], "r.json gives frameworks: leave it out, or the file"),
    ],
)
def test_wrong_arguments_get_one_line_and_status_2(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = invoke(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("crossbench: ")
    assert err.count("\n") == 1
    assert message in err
    assert files(tmp_path) == []


def test_what_is_not_text_names_no_layer_and_no_folder(tmp_path):
    with pytest.raises(SpecError, match="layer must be the name of a layer, not"):
        crossbench.script(layer=["conv1"], frameworks="torch", out=tmp_path)
    with pytest.raises(ProgramError, match="a folder is named by its path, not 3"):
        crossbench.script(layer="conv1", frameworks="torch", out=3)


SLOWEST = ["--layer", "slowest"]


def timed(found, milliseconds):
    """Give a cell the time of each part of the model, in milliseconds, in two rounds."""
    for part in found.parts:
        seconds = milliseconds.get(part.name, 1.0) / 1e3
        times = [PartTime(number, seconds, 1.0, 2.0) for number in (1, 2)]
        yield part.name, PartResult(1e-15, times)


@pytest.fixture
def results(tmp_path):
    """Return a function that writes a results file of rows with the times of their parts."""

    def save(model, *rows, name=None, layers=True):
        cells = [result(framework, [9.0, s, s], **o) for framework, s, _, o in rows]
        description = model.description()
        found = comparison(*cells, model=description)
        found.settings = replace(found.settings, model=name or model.name, layers=layers, rounds=2)
        found.reference = Reference([], False, [])
        if layers:
            found.parts = described(parts(model))
            for cell, (*_, milliseconds, _) in zip(cells, rows, strict=True):
                cell.parts = dict(timed(found, milliseconds))
        file = tmp_path / "r.json"
        found.replace(file)
        return file

    return save


def row(framework, seconds, options=None, **milliseconds):
    return framework, seconds, milliseconds, options or {}


def test_what_makes_a_row_slow_is_written_for_it_and_for_the_fastest(capsys, tmp_path, results):
    file = results(
        LENET5,
        row("torch", 1.0, conv1=5.0),
        row("jax", 2.0, conv1=5.5, maxpool1=9.0),
        row("keras", 3.0, conv1=30.0, maxpool1=9.0),
    )
    status, out, err = invoke(capsys, file, *SLOWEST, "--out", tmp_path / "out")
    assert (status, err) == (0, "")
    assert files(tmp_path / "out") == [
        "conv1_keras.py",
        "conv1_torch.py",
        "maxpool1_jax.py",
        "maxpool1_jax_without.py",
        "maxpool1_torch.py",
        "maxpool1_torch_without.py",
    ]
    lines = {line.split(": ")[0]: line.split(": ")[1] for line in out.splitlines()}
    assert lines[f"{tmp_path}/out/conv1_keras.py"] == (
        "conv1 of lenet5 in Keras (TensorFlow), batch size 100; it added 30.00 ms in the run"
    )
    assert lines[f"{tmp_path}/out/maxpool1_torch.py"].endswith("; it added 1.00 ms in the run")
    assert "batch of 100 " in (tmp_path / "out" / "conv1_torch.py").read_text()


def test_a_row_alone_has_its_longest_part(tmp_path, results):
    file = results(LENET5, row("jax", 2.0, relu1=3.0, optimizer=7.0))
    program, without = crossbench.script(file, layer="slowest", out=tmp_path / "out")
    assert program.path.name == "optimizer_jax.py"
    assert without.seconds is None
    assert program.seconds == pytest.approx(7e-3)


def test_the_time_is_that_of_one_of_equal_layers(tmp_path, results):
    file = results(models.get("resnet63"), row("torch", 2.0, conv2=3.0))
    program, _ = crossbench.script(file, layer="conv5", out=tmp_path / "out")
    assert program.seconds == pytest.approx(3e-3)


def test_rows_without_programs_are_passed_over_with_a_line_each(capsys, tmp_path, results):
    file = results(
        LENET5,
        row("torch:tuned", 0.5),
        row("torch", 1.0),
        row("jax", 2.0, conv1=5.0),
        row("reference", 9.0, conv1=50.0),
        row("torch", 0.1, {"device": "gpu"}),
        row("gone", 3.0, conv1=70.0),
    )
    status, _, err = invoke(capsys, file, *SLOWEST, "--out", tmp_path / "out")
    assert status == 0
    assert files(tmp_path / "out") == ["conv1_jax.py", "conv1_torch.py"]
    assert [line.partition("no program for ")[2] for line in err.splitlines()] == [
        "torch:tuned cpu: a program of a layer is written in the idiomatic way alone",
        "reference cpu: the adapter of NumPy reference writes no programs of a layer",
        "torch gpu: a program of a layer runs on the CPU alone",
        "gone cpu: there is no framework 'gone': choose from flux, jax, keras, lux, reference, "
        "torch",
    ]


def test_a_framework_that_lacks_the_layer_is_refused_and_its_row_passed_over(
    capsys, tmp_path, results, monkeypatch
):
    words = "unsupported layer for a program: Dense"

    def fail(*_):
        raise NotImplementedError(words)

    monkeypatch.setattr(adapters.get("jax").programs, "part_program", fail)
    with pytest.raises(SpecError, match=words):
        crossbench.script(layer="dense1", frameworks="jax", out=tmp_path)
    file = results(LENET5, row("torch", 1.0), row("jax", 2.0, dense1=5.0))
    status, _, err = invoke(capsys, file, *SLOWEST, "--out", tmp_path / "out")
    assert (status, err) == (0, f"crossbench: no program for jax cpu: {words}\n")
    assert files(tmp_path / "out") == ["dense1_torch.py", "dense1_torch_without.py"]


def test_a_file_of_such_rows_alone_is_refused(tmp_path, results):
    file = results(LENET5, row("torch:tuned", 0.5))
    with pytest.raises(SpecError, match="has no row that a program of a layer can be written for"):
        crossbench.script(file, layer="slowest", out=tmp_path / "out")


def test_a_row_of_which_no_part_is_slower_is_passed_over(capsys, tmp_path, results):
    file = results(LENET5, row("torch", 1.0), row("jax", 2.0), row("keras", 3.0, conv1=4.0))
    status, _, err = invoke(capsys, file, *SLOWEST, "--out", tmp_path / "out")
    assert status == 0
    assert err == (
        "crossbench: no program for jax cpu: no part of its step is known to be slower than in "
        "torch cpu; --layer names one\n"
    )
    assert files(tmp_path / "out") == ["conv1_keras.py", "conv1_torch.py"]


def test_several_batch_sizes_and_threads_are_in_the_names(tmp_path, results):
    file = results(
        LENET5,
        row("torch", 1.0, {"batch_size": 10, "name": "a"}),
        row("torch", 2.0, {"batch_size": 50, "name": "b", "threads": 1}),
    )
    found = crossbench.script(file, layer="conv1", out=tmp_path / "out")
    assert [program.path.name for program in found] == [
        "conv1_torch_batch10_threads2.py",
        "conv1_torch_batch50_threads1.py",
    ]
    assert "batch of 50 " in found[1].source
    assert "torch.set_num_threads(1)" in found[1].source


def test_a_run_without_layers_needs_the_name_of_one(capsys, tmp_path, results):
    file = results(LENET5, row("torch", 1.0), layers=False)
    status, out, err = invoke(capsys, file, *SLOWEST, "--out", tmp_path / "out")
    assert (status, out) == (2, "")
    assert err == (
        f"crossbench: {file} has no times of layers: run with --layers, or name a layer with "
        "--layer\n"
    )
    assert invoke(capsys, file, "--layer", "conv1", "--out", tmp_path / "out")[0] == 0


def test_the_model_of_a_results_file_has_the_vocabulary_of_its_data(tmp_path, results):
    model = models.get("text_lstm").with_vocabulary(31)
    (program,) = crossbench.script(
        results(model, row("torch", 1.0)), layer="lstm1", out=tmp_path / "out"
    )
    assert "LastOutput(31, 128, batch_first=True)" in program.source


def test_a_model_that_has_changed_is_refused(tmp_path, results):
    other = replace(LENET5, layers=LENET5.layers[:-1], name="lenet5")
    with pytest.raises(ResultsError, match="its model differs from lenet5 here"):
        crossbench.script(results(other, row("torch", 1.0)), layer="conv1", out=tmp_path / "out")


def test_a_model_of_a_run_from_python_is_given_again(tmp_path, results):
    file = results(PLAIN, row("torch", 1.0))
    with pytest.raises(SpecError, match="there is no model 'plain'"):
        crossbench.script(file, layer="conv1", out=tmp_path / "out")
    (program,) = crossbench.script(file, layer="conv1", model=PLAIN, out=tmp_path / "out")
    assert program.model == "plain"
    found = results(DROPPED, row("torch", 1.0), name=named("DROPPED"))
    program, _ = crossbench.script(found, layer="dropout1", out=tmp_path / "out")
    assert program.model == "dropped"


@pytest.mark.long
@pytest.mark.parametrize("framework", ["torch", "jax", "keras"])
def test_a_program_runs_without_crossbench(tmp_path, framework, installed):
    installed(framework)
    found = crossbench.script(
        model="lenet5", layer="conv2", batch_size=8, frameworks=framework, out=tmp_path
    )
    assert [program.without_part for program in found] == [False, True]
    environment = os.environ | {"PYTHONPATH": ""}
    for program in found:
        command = [sys.executable, program.path]
        run = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert re.fullmatch(r"\d+\.\d{3} ms, \w+ \d+\.\d+\.\S+\n", run.stdout)
