"""The packages in examples/, installed: they are found, and agree with the reference.

Of the conformance suite only CHOSEN runs here. Left for a run by hand, with the command of
docs/extending.md: the LeNet, batches of other sizes, streamed ones, that predictions and
gradients change nothing, and that training can start anew.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crossbench.workload import versions

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "examples" / "plugin"
PACKAGES = {"equinox": PACKAGE, "plain_numpy": ROOT / "examples" / "plugin_adapter"}
NOISE = re.compile(
    r"interquartile range|operating system's kernel|not significantly|other processes|the host|"
    r"of the best one|process was stopped"
)
"""What the remarks have that a busy machine causes."""
ORDINARY_RUN = """
import json, sys
import crossbench
from crossbench.models import SGD, Dense, Flatten, Model, ReLU, SoftmaxCrossEntropy
from crossbench.report.remarks import remarks

model = Model(
    "perceptron", (3, 8, 8), (Flatten(), Dense(64), ReLU(), Dense(10)), SoftmaxCrossEntropy(),
    SGD(0.01, 0.9), 64, "the tests",
)
found = crossbench.run([sys.argv[1], "reference"], "cpu", model=model, batches=8, rounds=2)
told = [text for row in found.results for text in remarks(found, row)]
print(json.dumps([[found.is_ranked(row) for row in found.results], told]))
"""
CHOSEN = (
    "agrees_with_the_reference and not lenet",  # each layer, loss and optimizer that it has
    "weights_come_back",
    "placed_data",
    "details",
    "does_not_know",
)
LEFT_OUT = ("speaking", "patched", "gated_both_ways", "robust", "segmented", "branched", "bent")
LEFT_OUT += ("generated", "convolved", "rotated")
"""The small models with layers, losses or optimizers that the package leaves out."""


@pytest.fixture(scope="module")
def environment(install_package):
    """Install the packages; return the environment of a process that has them."""
    for framework in ("equinox", "jax"):
        if not versions(framework):
            pytest.skip(f"{framework} is not installed")
    path = [*map(install_package, PACKAGES.values()), ROOT, os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, filter(None, path)))}


def run(words, environment):
    """Run `python -m` with these words; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", PACKAGES)
def test_an_ordinary_run_has_no_remark_but_noise(environment, name):
    done = subprocess.run(
        [sys.executable, "-c", ORDINARY_RUN, name], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ranked, told = json.loads(done.stdout.splitlines()[-1])
    assert ranked == [True, True], told
    assert [text for text in told if not NOISE.search(text)] == []


@pytest.mark.long
def test_the_check_names_the_layers_that_a_package_lacks(environment):
    out = run(["crossbench", "doctor", "--check", "--frameworks", ",".join(PACKAGES)], environment)
    lines = dict(re.findall(r"^(\S+) cpu +(.*)$", out, re.M))
    lacks = "does not support the model tokens (the Equinox adapter does not support the layer Mult"
    assert lines["equinox"].startswith(lacks)
    assert "; agrees in the model pictures, the largest deviation is " in lines["equinox"]
    assert re.match(
        r"does not support the model pictures \(.* layer Conv\(.*\) and the model tokens \(.*\)$",
        lines["plain_numpy"],
    )


def test_the_documentation_lists_what_the_examples_take_from_crossbench():
    page = (ROOT / "docs" / "extending.md").read_text()
    for path in (ROOT / "examples").rglob("*.py"):
        for line in re.findall(r"^from (crossbench(?:\.\w+)*) import", path.read_text(), re.M):
            assert f"| `{line}` |" in page, f"{path} takes what the page does not list"


@pytest.mark.long
def test_the_suite_of_every_adapter(environment):
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", "--adapters", "equinox"]
    suite = "tests/adapters/test_conformance.py"
    chosen = " or ".join(f"({part})" for part in CHOSEN)
    has = " and ".join(f"not {name}" for name in LEFT_OUT)
    out = run(["pytest", *words, suite, "-k", f"({chosen}) and {has}"], environment)
    assert int(re.search(r"(\d+) passed", out)[1]) >= 10 + 20 + len(CHOSEN) - 2
    assert "skipped" not in out


@pytest.mark.long
def test_its_programs_have_the_losses_of_the_reference_and_of_its_rows(environment):
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "", "--adapters", "equinox"]
    suite = "tests/adapters/test_training_programs.py"
    out = run(
        ["pytest", *words, suite, "-k", "(lenet and not mobilenet) or mlp7_relu"], environment
    )
    assert "5 passed" in out


def test_the_documentation_says_how_long_the_package_is():
    files = (PACKAGE / "crossbench_equinox").glob("*.py")
    length = sum(len(file.read_text().splitlines()) for file in files)
    assert f"{length} lines" in (ROOT / "docs" / "extending.md").read_text()
