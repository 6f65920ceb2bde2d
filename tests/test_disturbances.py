"""What disturbs a measurement, made for real: each is named by a warning of its own."""

import os
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from samples import write_cifar

import crossbench
from crossbench import models
from crossbench.machine import usable_cpus
from crossbench.models.layers import Dense, Flatten
from crossbench.report.remarks import remarks

TINY = replace(models.get("lenet"), name="tiny", layers=(Flatten(), Dense(10)))
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")


@pytest.fixture
def told(tmp_path):
    """The remarks on an adapter's steady epochs."""

    def told(adapter="reference", threads=1):
        data = write_cifar(tmp_path / "cifar", per_file=2000)
        comparison = crossbench.run(
            [adapter], "cpu", model=TINY, data=data, batch_size=100, rounds=1, epochs=6,
            threads=threads,
        )  # fmt: skip
        (result,) = comparison.results
        assert result.status == "ran", result.reason
        return "\n".join(remarks(comparison, result))

    return told


def test_another_process_on_one_of_the_cpus(told):
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert "other processes used" in told(threads=len(usable_cpus()))
    finally:
        spinning.kill()
        spinning.wait()


@pytest.mark.usefixtures("faulty")
def test_a_process_that_is_stopped_for_a_second(told):
    assert "its process was stopped for" in told("reference_is_stopped")


@contextmanager
def quota(microseconds):
    """A control group whose processes get so much of every 100 ms; of version 1 or 2."""
    for folder, file, words in (
        (CPU_GROUPS, "cpu.cfs_quota_us", f"{microseconds}"),
        (CPU_GROUPS.parent, "cpu.max", f"{microseconds} 100000"),
    ):
        group = folder / f"crossbench-test-{uuid.uuid4().hex}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(words)
            yield group
            return
        except OSError:
            continue
        finally:
            group.rmdir()
    pytest.skip("a CPU quota cannot be set here: that takes a control group of one's own")


def test_a_quota(tmp_path, small_run):
    """In a process of its own, which joins the group before it starts."""
    write_cifar(tmp_path / "cifar", per_file=2000)
    command = [sys.executable, "-m", "crossbench", *small_run, "--epochs", "3"]
    with quota(40_000) as group:
        join = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        done = subprocess.run(
            ["sh", "-c", join, "sh", *command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "200"},
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "a CPU quota held its threads back for" in done.stdout
