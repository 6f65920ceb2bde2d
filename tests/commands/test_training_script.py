"""`script` without a layer: the programs of rows, and the arrays that they read."""

import ast
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from samples import write_cifar, write_mnist
from scripting import files, invoke

import crossbench
from crossbench import models
from crossbench.inputs.errors import DataError, ProgramError, ResultsError, SpecError
from crossbench.programs import of_comparison

FAST = {"model": "mlp7_relu", "batches": 3, "batch_size": 16}


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    return write_cifar(tmp_path_factory.mktemp("data") / "cifar", per_file=30)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return write_mnist(tmp_path_factory.mktemp("data") / "mnist", 120)


@pytest.fixture(scope="module")
def run(digits, tmp_path_factory):
    """Return a comparison of a short run of PyTorch, and its results file."""
    file = tmp_path_factory.mktemp("run") / "r.json"
    words = {"model": "mnist_mlp", "data": digits, "batch_size": 40, "rounds": 1, "seed": 3}
    return crossbench.run("torch,reference", **words, json=file), file


def printed_losses(program, *words):
    """Run a program as its user does; return the losses that it prints of the first epoch."""
    command = [sys.executable, program.path, *words]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    first = text.splitlines()[0]
    assert re.match(r"epoch 1: [\d.]+ s, losses ", first)
    return [float(word) for word in first.split("losses ")[1].split()]


def test_a_program_is_written_for_each_row_with_a_line_for_each_file(capsys, cifar, tmp_path):
    words = ["--frameworks", "torch", "--variants", "idiomatic,compile,tuned", "--data", cifar]
    status, out, err = invoke(capsys, *words, "--batch-size", "50", "--out", tmp_path / "new")
    assert status == 0
    assert err.startswith("crossbench: no program for torch:tuned cpu: the code of torch:tuned is ")
    assert files(tmp_path / "new") == [
        "train_torch.py",
        "train_torch_compile.py",
        "weights_torch.npz",
    ]
    first, second, weights = out.splitlines()
    said = f"{tmp_path}/new/train_torch.py: lenet in PyTorch, 3 batches of 50; "
    assert re.fullmatch(re.escape(said) + r"\d+ lines", first)
    assert "PyTorch compile" in second
    assert weights == f"{tmp_path}/new/weights_torch.npz: initial weights; 0.161 MB"


def test_the_losses_are_those_of_the_rows_first_epoch(run, tmp_path):
    comparison, file = run
    (program,) = crossbench.script(file, out=tmp_path)
    assert program.path.name == "train_torch.py"
    losses = comparison.results[0].epochs[0].losses
    assert printed_losses(program) == pytest.approx([*losses[:4], losses[-1]], rel=1e-6)


def test_rows_without_programs_are_passed_over_with_a_line_each(capsys, run, tmp_path):
    status, _, err = invoke(capsys, run[1], "--out", tmp_path)
    assert status == 0
    assert err == (
        "crossbench: no program for reference cpu: the adapter of NumPy reference writes no "
        "programs\n"
    )


def test_a_row_in_bfloat16_has_a_program_of_its_own(run):
    comparison, _ = run
    row = comparison.results[0]
    words = {
        "torch": 'with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):',
        "jax": "outputs = model(inputs).astype(jnp.float32)",
        "keras": 'keras.config.set_dtype_policy("mixed_bfloat16")',
    }
    cells = [replace(row.cell, framework=f, compute="bfloat16") for f in words]
    rows = [replace(row, cell=cell) for cell in cells]
    programs = of_comparison(replace(comparison, results=rows))
    for program, (framework, word) in zip(programs, words.items(), strict=True):
        assert program.path.name == f"train_{framework}_bfloat16.py"
        assert " on the CPU, in bfloat16." in program.source
        assert word in program.source
    assert programs[0].source.count("torch.autocast") == 2  # of the training too


@pytest.mark.long
def test_other_initial_weights_change_the_losses(tmp_path):
    (program,) = crossbench.script(**FAST, frameworks="torch", out=tmp_path)
    before = printed_losses(program, "--epochs", "1")
    weights = dict(np.load(tmp_path / "weights_torch.npz"))
    np.savez(tmp_path / "other.npz", **{name: 2 * array for name, array in weights.items()})
    after = printed_losses(program, "--epochs", "1", "--initial", tmp_path / "other.npz")
    assert after[0] != pytest.approx(before[0], rel=1e-3)


def test_a_path_and_a_source_with_quotes_are_text_in_the_program(cifar, tmp_path, monkeypatch):
    place = tmp_path / 'a"b\\c'
    shutil.copytree(cifar, place)
    model = replace(models.get("lenet"), source='the "\\n" of """three"""', batch_size=50)
    (program,) = crossbench.script(model=model, frameworks="torch", data=place, out=tmp_path)
    assert ast.get_docstring(ast.parse(program.source)).count('"""three"""') == 1
    monkeypatch.setattr(sys, "argv", ["program", "--epochs", "1"])
    assert len(runpy.run_path(str(program.path), run_name="__main__")["losses"]) == 3


def test_a_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch):
    def appearing(path, arrays):
        path.write_text("mine")
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr("crossbench.programs.of_models.write_arrays", appearing)
    with pytest.raises(ProgramError, match="cannot be written: File exists"):
        crossbench.script(**FAST, frameworks="torch", out=tmp_path)
    assert (tmp_path / "weights_torch.npz").read_text() == "mine"


def test_batch_sizes_and_threads_are_in_the_names(tmp_path):
    found = crossbench.script(
        **FAST | {"batch_size": [8, 16], "threads": [1, 2]}, frameworks="torch", out=tmp_path
    )
    assert [program.path.name for program in found] == [
        "train_torch_batch8_threads1.py",
        "train_torch_batch8_threads2.py",
        "train_torch_batch16_threads1.py",
        "train_torch_batch16_threads2.py",
    ]
    assert "BATCH_SIZE, BATCHES = 8, 3" in found[0].source
    assert "torch.set_num_threads(1)" in found[0].source


def test_a_row_on_a_gpu_has_its_own_program(tmp_path):
    (program,) = crossbench.script(**FAST, frameworks="torch", devices="gpu", out=tmp_path)
    assert program.path.name == "train_torch_gpu.py"
    assert '"cuda"' in program.source
    assert "allow_tf32 = False" in program.source


def test_no_file_is_overwritten_without_force(capsys, tmp_path):
    text, out = tmp_path / "a.txt", tmp_path / "out"
    text.write_text("ab" * 300)
    out.mkdir()
    (out / "weights_torch.npz").write_text("mine")
    words = ["--frameworks", "torch", "--model", "text_lstm", "--data", text, "--batches", "1"]
    status, _, err = invoke(capsys, *words, "--out", out)
    assert status == 2
    assert err == (
        f"crossbench: {out}/weights_torch.npz exists already: choose another folder, or --force\n"
    )
    assert files(out) == ["weights_torch.npz"]
    assert (out / "weights_torch.npz").read_text() == "mine"
    status, lines, _ = invoke(capsys, *words, "--out", out, "--force")
    assert status == 0
    assert f"{out}/data.npz: examples; " in lines
    assert files(out) == ["data.npz", "train_torch.py", "weights_torch.npz"]
    weights = np.load(out / "weights_torch.npz")
    assert [name for name in weights if "bias_hh" in name and not weights[name].any()]


def test_a_model_that_has_changed_is_refused(run, tmp_path):
    other = replace(models.get("mnist_mlp"), optimizer=models.SGD(0.5))
    with pytest.raises(ResultsError, match="its model differs from mnist_mlp here"):
        crossbench.script(run[1], model=other, out=tmp_path)


def test_data_that_has_changed_is_refused(run, digits, tmp_path):
    labels = digits / "train-labels-idx1-ubyte"
    before = labels.read_bytes()
    try:
        labels.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        with pytest.raises(ResultsError, match="is not what is here"):
            crossbench.script(run[1], out=tmp_path)
        labels.unlink()
        with pytest.raises(DataError, match="train-labels"):
            crossbench.script(run[1], out=tmp_path)
    finally:
        labels.write_bytes(before)


def test_arrays_that_do_not_fit_on_the_disk_are_removed(tmp_path, monkeypatch):
    def full(file, **_):
        file.write(b"part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(ProgramError, match="cannot be written: No space left"):
        crossbench.script(**FAST, frameworks="torch", out=tmp_path)
    assert "weights_torch.npz" not in files(tmp_path)


def test_what_the_rows_ran_is_kept_and_written(capsys, run, tmp_path):
    comparison, file = run
    status, _, err = invoke(capsys, file, "--ran", "--out", tmp_path)
    assert status == 0
    assert f"{file} keeps no source code of reference cpu\n" in err
    row = comparison.results[0]
    assert row.cell.framework == "torch"
    (path,) = tmp_path.iterdir()
    assert path.name == "ran_torch_cpu.py"
    assert path.read_text() == row.source_code
    (program,) = crossbench.script(file, out=tmp_path / "programs")
    trains, _, gradients = row.source_code.partition("def compute_gradients")
    assert gradients  # which no epoch takes
    shown = [line.strip() for line in program.source.splitlines()]
    assert [line for line in trains.splitlines() if line.strip() not in shown] == []


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "what rows ran is in a results file: name it"),
        ({"results": True, "layer": "conv1"}, "gives what its rows ran: leave out layer"),
        ({"results": True, "model": "lenet", "seed": 1}, "leave out seed, model"),
    ],
)
def test_what_cannot_be_given_with_what_ran(run, given, error):
    given = given | ({"results": run[1]} if given else {})
    with pytest.raises(SpecError, match=error):
        crossbench.script(ran=True, **given)


def test_a_file_without_source_code(run, tmp_path):
    comparison, _ = run
    rows = [replace(row, source_code="") for row in comparison.results]
    replace(comparison, results=rows).save(tmp_path / "old.json")
    with pytest.raises(ResultsError, match=r"old\.json keeps no source code of its rows"):
        crossbench.script(tmp_path / "old.json", ran=True)
