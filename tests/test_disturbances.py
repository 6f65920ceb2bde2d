"""Disturb a real measurement: each kind of disturbance has a remark of its own."""

import os
import subprocess
import sys
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from samples import write_cifar
from small_models import TINY

import crossbench
from crossbench.host.machine import usable_cpus
from crossbench.report.remarks import remarks

CPU_GROUPS = Path("/sys/fs/cgroup/cpu")


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


@pytest.mark.long
def test_another_process_on_one_of_the_cpus_has_a_remark(measure_remarks):
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert "other processes used" in measure_remarks(threads=len(usable_cpus()))
    finally:
        spinning.kill()
        spinning.wait()


@pytest.mark.long
@pytest.mark.usefixtures("faulty")
def test_a_process_that_is_stopped_for_a_second_has_a_remark(measure_remarks):
    assert "its process was stopped for" in measure_remarks("reference_is_stopped")


@contextmanager
def quota(microseconds):
    """Make a control group (version 1 or 2) with a quota of CPU time in microseconds per 100 ms."""
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
    pytest.skip("a CPU quota cannot be set here: creating a control group is not permitted")


@pytest.mark.long
def test_a_cpu_quota_has_a_remark(tmp_path, small_run):
    """Let the run's processes be in the group during its epochs alone."""
    write_cifar(tmp_path / "cifar", per_file=2000)
    run = psutil.Popen(
        [sys.executable, "-m", "crossbench", *small_run, "--epochs", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "200"},
    )
    lines = []
    with run, quota(10_000) as group:  # other processes leave it more than this
        for line in run.stderr:
            lines.append(line)
            if line.endswith(", first epoch\n"):
                _move(run, group)
            elif line.endswith(": losses of the first steps in the reference\n"):
                _move(run, group.parent)
        output = run.stdout.read()
    assert run.returncode == 0, lines
    assert "a CPU quota throttled its threads for" in " ".join(output.split())


def _move(run, group):
    (group / "cgroup.procs").write_text(f"{run.pid}")  # those that it starts now belong to it too
    for process in run.children(recursive=True):
        with suppress(ProcessLookupError):  # a worker that has just ended
            (group / "cgroup.procs").write_text(f"{process.pid}")
