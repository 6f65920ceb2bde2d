"""A sweep with earlier results runs again what has changed, and nothing else."""

import gzip
import shutil
from dataclasses import replace

import numpy as np
import pytest
from sweeping import QUICK

import crossbench
from crossbench.inputs.errors import ResultsError
from crossbench.sweeps import since
from crossbench.sweeps.folder import Folder
from crossbench.sweeps.jobs import make_jobs

JOBS = [QUICK | {"seed": seed} for seed in (0, 1)]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Run the jobs once, and return their folder."""
    folder = tmp_path_factory.mktemp("earlier") / "first"
    assert [task.state for task in crossbench.sweep(JOBS, folder)] == ["done", "done"]
    return folder


def test_what_has_the_same_versions_is_not_run_again(earlier, tmp_path):
    out = tmp_path / "second"
    tasks = crossbench.sweep(JOBS, out, since=earlier.parent)
    assert [task.state for task in tasks] == ["done", "done"]
    assert all("unchanged since first/" in task.reason for task in tasks)
    assert list(out.glob("*.json")) == []
    with pytest.raises(ResultsError, match="nowhere cannot be read: No such file"):
        crossbench.sweep(JOBS, tmp_path / "out", since=tmp_path / "nowhere")
    assert not (tmp_path / "out").exists()


def test_another_version_of_a_package_runs_its_jobs_again(earlier, tmp_path):
    folder = shutil.copytree(earlier, tmp_path / "earlier")
    (old,) = folder.glob("small_models.py-FITTED-seed-1*.json")
    comparison = crossbench.load(old)
    comparison.results[0].details["numpy"] = "1.0"
    comparison.replace(old)
    tasks = crossbench.sweep(JOBS, tmp_path / "second", since=folder)
    assert [bool(task.reason) for task in tasks] == [True, False]
    (made,) = (tmp_path / "second").glob("*.json")
    assert made.name == old.name
    assert crossbench.load(made).results[0].details["numpy"] == np.__version__


def test_another_crossbench_runs_everything_again(earlier, tmp_path, monkeypatch):
    jobs, folder = make_jobs(JOBS), Folder(earlier)
    assert len(since.unchanged(folder, jobs)) == 2
    for path in earlier.glob("*.json"):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert len(since.unchanged(Folder(tmp_path), jobs)) == 2  # files that gzip packed are ones too
    monkeypatch.setattr(since, "__version__", "99.0")
    assert since.unchanged(folder, jobs) == {}


def test_what_failed_or_was_not_installed_is_run_again(earlier):
    comparison = crossbench.load(next(earlier.glob("*.json")))
    (row,) = comparison.results
    row.status = "failed"
    assert since.change(comparison) == "not every row ran"
    row.status = "ran"
    absent = replace(row, cell=replace(row.cell, named=False), status="unavailable")
    comparison.results.append(absent)
    assert since.change(comparison) == "NumPy reference is installed here"


def test_the_results_of_one_machine_say_nothing_of_another(earlier, tmp_path):
    jobs = make_jobs(JOBS)
    for path in earlier.glob("*.json"):
        shutil.copy(path, tmp_path / f"{path.stem}@host.json")
    found = since.unchanged(Folder(tmp_path), jobs)
    assert set(found) == {(job.digest, "host") for job in jobs}
    assert set(since.unchanged(Folder(earlier), jobs)) == {(job.digest, "") for job in jobs}


@pytest.mark.parametrize(
    ("there", "same"), [("2.11.0", True), ("2.11.0+cu130", True), ("2.11.0+cpu", False)]
)
def test_a_build_that_one_version_does_not_name_is_no_change(there, same):
    assert since._is_same(there, "2.11.0+cu130") is same


def test_a_framework_that_is_not_installed_has_changed(earlier):
    comparison = crossbench.load(next(earlier.glob("*.json")))
    assert since.change(comparison) is None
    cell = comparison.results[0].cell
    object.__setattr__(cell, "framework", "nothing")
    assert "there is no framework 'nothing'" in since.change(comparison)
