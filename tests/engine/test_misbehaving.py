"""Run adapters that misbehave beside a correct one: each loses only its own row."""

from __future__ import annotations

import os
import re
from pathlib import Path

import psutil
import pytest
from samples import write_cifar
from small_models import SMALL_MODELS

import crossbench

pytestmark = pytest.mark.long

PLUGIN = Path(__file__).parents[1] / "plugin"

# the status of each row, and its reason as a pattern
ROWS = {
    "well": ("ran", None),
    "exits": ("failed", r"SystemExit: 3 \(in round 1\)"),
    "exits_well": ("failed", r"the worker process exited with status 0 \(in round 1\)"),
    "interrupts": ("failed", r"KeyboardInterrupt \(in round 1\)"),
    "final": ("failed", r"Final: the end \(in round 1\)"),
    "silent": ("failed", r"Silent \(in round 1\)"),
    "colours": ("failed", r"RuntimeError: red ink\? and \? \(in round 1\)"),
    "garbage": ("failed", r"its answer to `epoch` cannot be read: it has more than .*"),
    "short_garbage": ("failed", r"its answer to `epoch` cannot be read: JSON is malformed.*"),
    "closes": ("failed", r"the worker process (exited with status|was killed by) .*"),
    "forks": ("ran", None),
    "leaves_a_child": ("ran", None),
    "meddles": ("ran", None),
    "no_work": ("ran", None),
    "short_of_memory": ("ran", None),
    "no_losses": (
        "failed",
        r"train_epoch\(\) of the adapter returned an array of shape \(0,\) and type float64, "
        r"not an array of 4 numbers \(one loss for each batch\) \(in parity\)",
    ),
    "details_of_lines": ("ran", None),
}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """Return the comparison of all of them, and the directory of its results file."""
    directory = tmp_path_factory.mktemp("misbehaving")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PLUGIN)
        patch.setenv("CROSSBENCH_TEST_NOTES", str(directory / "children"))
        comparison = crossbench.run(
            list(ROWS),
            ["cpu"],
            model=SMALL_MODELS["plain"],
            data=write_cifar(directory / "cifar"),
            rounds=1,
            batch_size=20,
            threads=1,
            timeout=60,
            json=directory / "r.json",
        )
    return comparison, directory


def test_an_adapter_that_misbehaves_loses_its_own_row(comparison):
    for result in comparison[0].results:
        status, reason = ROWS[result.cell.framework]
        assert result.status == status, result.reason
        assert re.fullmatch(reason, result.reason) if reason else result.reason is None


def test_the_results_file_is_read_back_and_shown(comparison):
    measured, directory = comparison
    assert crossbench.load(directory / "r.json") == measured
    text = crossbench.table(measured)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert Path.cwd() != Path("/")  # one of them changed this in its process
    assert "PATH" in os.environ


def test_a_child_in_another_session_is_stopped_with_its_worker(comparison):
    children = [int(line) for line in (comparison[1] / "children").read_text().split()]
    assert children
    for child in children:
        assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"
