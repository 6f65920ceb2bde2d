"""Disturb a real measurement: each kind of disturbance has a remark of its own."""

import subprocess
import sys

import pytest
from samples import write_cifar
from small_models import TINY

import crossbench
from crossbench.host.machine import usable_cpus
from crossbench.report.remarks import remarks

pytestmark = pytest.mark.long


def measured_remarks(folder, adapter="reference", threads=1):
    """Run an adapter, and return the remarks on it."""
    data = write_cifar(folder / "cifar", per_file=2000)
    asked = {"model": TINY, "batch_size": 100, "rounds": 1, "epochs": 6, "threads": threads}
    comparison = crossbench.run([adapter], "cpu", data=data, **asked)
    (result,) = comparison.results
    assert result.status == "ran", result.reason
    return "\n".join(remarks(comparison, result))


def test_another_process_on_one_of_the_cpus_has_a_remark(tmp_path):
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert "other processes used" in measured_remarks(tmp_path, threads=len(usable_cpus()))
    finally:
        spinning.kill()
        spinning.wait()


@pytest.mark.usefixtures("faulty")
def test_a_process_that_is_stopped_for_a_second_has_a_remark(tmp_path):
    assert "its process was stopped for" in measured_remarks(tmp_path, "reference_is_stopped")
