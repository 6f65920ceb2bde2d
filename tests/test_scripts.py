"""Each script from end to end, with the NumPy reference instead of all that is installed, and a
small model instead of the posts', which take minutes.
"""

import runpy
import sys
from functools import partial
from pathlib import Path

import pytest
from samples import write_cifar

import crossbench
from crossbench import models

SCRIPTS = sorted((Path(__file__).parents[1] / "scripts").glob("*.py"))


@pytest.fixture(params=SCRIPTS, ids=lambda script: script.stem)
def script(request):
    return request.param


def test_a_script_prints_its_table_and_the_posts(
    script, small_model, tmp_path, monkeypatch, capsys
):
    directory = write_cifar(tmp_path / "cifar")
    run, model, asked_for = partial(crossbench.run, ["reference"], ["cpu"]), small_model, []

    def small(**asked):
        asked_for.append(asked["model"])
        return run(**asked | {"rounds": 1, "model": model, "data": directory})

    monkeypatch.setattr(crossbench, "run", small)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    out = capsys.readouterr().out
    assert "NumPy reference" in out
    assert "the post" in out
    assert set(asked_for) <= set(models.names())


def test_a_script_says_in_a_line_what_is_wrong(script, monkeypatch):
    arguments = ["0"] if "utilisation" in script.stem else ["nowhere"]
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    with pytest.raises(SystemExit, match=r"^crossbench: (data must be|batches must be)"):
        runpy.run_path(str(script), run_name="__main__")


def test_there_are_scripts():
    assert len(SCRIPTS) == 4
