"""Each script from end to end, with the NumPy reference instead of all that is installed."""

import runpy
import sys
from functools import partial
from pathlib import Path

import pytest
from samples import write_cifar

import crossbench

SCRIPTS = sorted((Path(__file__).parents[1] / "scripts").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_prints_its_table_and_the_posts(script, tmp_path, monkeypatch, capsys):
    directory = write_cifar(tmp_path / "cifar", per_file=200)  # one batch of 1,000
    run = partial(crossbench.run, ["reference"], ["cpu"])
    monkeypatch.setattr(crossbench, "run", lambda **asked: run(**asked | {"rounds": 1}))
    monkeypatch.setattr(sys, "argv", [str(script), str(directory)])
    runpy.run_path(str(script), run_name="__main__")
    out = capsys.readouterr().out
    assert "NumPy reference" in out
    assert "the post" in out


def test_there_are_scripts():
    assert len(SCRIPTS) == 4
