"""Test a sweep on Slurm's machines by dask-jobqueue, where there is a Slurm."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from sweeping import QUICK

import crossbench


def test_a_sweep_runs_on_slurms_machines(tmp_path, monkeypatch):
    dask_jobqueue = pytest.importorskip("dask_jobqueue")
    if not shutil.which("sbatch"):
        pytest.skip("no sbatch on the PATH")
    idle = subprocess.run(["sinfo", "-h", "-t", "idle"], capture_output=True, text=True, timeout=60)
    if idle.returncode or not idle.stdout.strip():
        pytest.skip("Slurm has no idle node")
    monkeypatch.chdir(tmp_path)  # sbatch writes its log where it is called
    cluster = dask_jobqueue.SLURMCluster(
        cores=1,
        memory="1GB",
        job_cpu=1,
        walltime="00:10:00",
        job_extra_directives=["--exclusive"],
        scheduler_options={"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"},
    )
    with cluster, cluster.get_client() as client:
        cluster.scale(jobs=1)
        client.wait_for_workers(1, timeout=120)
        queue = subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=True)
        [task] = crossbench.sweep([QUICK], tmp_path / "out", client)
    assert "dask-wor" in queue.stdout
    assert task.state == "done"
