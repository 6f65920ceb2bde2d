"""Run each script from end to end, with the NumPy reference instead of the installed frameworks and
a small model instead of the posts', which take minutes.
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


@pytest.mark.long
def test_a_script_prints_its_table_and_the_published_one(
    script, small_model, tmp_path, monkeypatch, capsys
):
    directory = write_cifar(tmp_path / "cifar")
    run, models_of_scripts, comparisons = partial(crossbench.run, ["reference"], ["cpu"]), [], {}

    def run_small(_frameworks=None, **arguments):
        """Run the small model once for all models of a script that have the same arguments."""
        models_of_scripts.append(arguments["model"])
        sizes = {"batch_size": [5, 20]} if "batch_size" in arguments else {}
        small = arguments | {"rounds": 1, "model": small_model, "data": directory} | sizes
        key = repr(sorted(item for item in small.items() if item[0] != "progress"))
        if key not in comparisons:
            comparisons[key] = run(**small)
        return comparisons[key]

    monkeypatch.setattr(crossbench, "run", run_small)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    out = capsys.readouterr().out
    assert "NumPy reference" in out
    assert "the post" in out
    assert set(models_of_scripts) <= set(models.names())


def test_a_wrong_argument_of_a_script_gets_one_line(script, monkeypatch):
    takes_batches = script.stem in ("cpu_and_gpu_utilisation", "sciml_simple_networks")
    arguments = ["0"] if takes_batches else ["nowhere"]
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    with pytest.raises(SystemExit, match=r"^crossbench: (data must be|batches must be)"):
        runpy.run_path(str(script), run_name="__main__")


def test_every_script_is_found():
    assert len(SCRIPTS) == 5
