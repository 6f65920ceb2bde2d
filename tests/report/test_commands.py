"""Test the command lines that a page and the details name (see test_page.py)."""

import shlex
from dataclasses import replace

from samples import comparison, result

from crossbench import cli
from crossbench.report import commands

SECONDS = [2.0, 1.0, 1.0]
WORK = (
    "--frameworks torch --devices cpu --model m --data 'a b' --batch-size 100 --seed 0 --threads 2"
)


def test_a_command_repeats_the_run():
    asked = {"rounds": 6, "data": "a b", "prices": {"cpu": 0.1}, "trace_memory": True}
    assert commands.run_command(comparison(result("torch", SECONDS), **asked)) == (
        f"python -m crossbench {WORK} --task train --rounds 6 --epochs 1 --price cpu=0.1/h "
        "--trace-memory"
    )


def test_a_command_writes_the_programs_of_the_rows_that_train():
    rows = result("torch", SECONDS), result("jax", SECONDS, task="predict")
    c = comparison(*rows, data="a b")
    assert commands.script_command(c) == f"python -m crossbench script {WORK}"
    assert commands.script_command(comparison(rows[1])) == ""


def test_it_writes_them(tmp_path, capsys):
    c = comparison(result("torch", SECONDS))
    c.settings = replace(c.settings, model="mlp7_relu", data="auto")
    c.data = replace(c.data, most_batches=2)
    words = shlex.split(commands.script_command(c))[3:]
    assert cli.main([*words, "--out", str(tmp_path)]) == 0
    assert "2 batches of 100" in capsys.readouterr().out
    assert (tmp_path / "train_torch.py").exists()
