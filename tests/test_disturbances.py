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


@pytest.fixture
def measure_remarks(tmp_path):
    """Return a function that runs an adapter and returns the remarks on it."""

    def measure_remarks(adapter="reference", threads=1):
        data = write_cifar(tmp_path / "cifar", per_file=2000)
        comparison = crossbench.run(
            [adapter], "cpu", model=TINY, data=data, batch_size=100, rounds=1, epochs=6,
            threads=threads,
        )  # fmt: skip
        (result,) = comparison.results
        assert result.status == "ran", result.reason
        return "\n".join(remarks(comparison, result))

    return measure_remarks


def test_another_process_on_one_of_the_cpus_has_a_remark(measure_remarks):
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert "other processes used" in measure_remarks(threads=len(usable_cpus()))
    finally:
        spinning.kill()
        spinning.wait()


@pytest.mark.usefixtures("faulty")
def test_a_process_that_is_stopped_for_a_second_has_a_remark(measure_remarks):
    assert "its process was stopped for" in measure_remarks("reference_is_stopped")
