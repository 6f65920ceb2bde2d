"""A sweep with earlier results runs again what has changed, and nothing else."""

import gzip

import numpy as np
import pytest
from small_models import named
from sweeping import QUICK

import crossbench
from crossbench.inputs.errors import ResultsError
from crossbench.sweeps import since
from crossbench.sweeps.folder import Folder
from crossbench.sweeps.jobs import make_jobs

JOBS = [QUICK | {"model": named(name), "batch_size": 2} for name in ("FITTED", "TINY")]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Run the jobs once, and return their folder."""
    folder = tmp_path_factory.mktemp("earlier") / "first"
    assert [task.state for task in crossbench.sweep(JOBS, folder)] == ["done", "done"]
    return folder


def edited(earlier, tmp_path, name, edit):
    """Return a copy of the folder, with one of its files edited."""
    copy = tmp_path / "earlier"
    copy.mkdir()
    for path in earlier.glob("*.json"):
        comparison = crossbench.load(path)
        if path.name.startswith(name):
            edit(comparison)
        comparison.save(copy / path.name)
    return copy


def test_what_has_the_same_versions_is_not_run_again(earlier, tmp_path):
    out = tmp_path / "second"
    tasks = crossbench.sweep(JOBS, out, since=earlier.parent)
    assert [task.state for task in tasks] == ["done", "done"]
    assert all("unchanged since first/" in task.reason for task in tasks)
    assert list(out.glob("*.json")) == []


def test_another_version_of_a_package_runs_its_jobs_again(earlier, tmp_path):
    def older(comparison):
        comparison.results[0].details["numpy"] = "1.0"

    folder = edited(earlier, tmp_path, "small_models.py-TINY", older)
    tasks = crossbench.sweep(JOBS, tmp_path / "second", since=folder)
    assert [bool(task.reason) for task in tasks] == [True, False]
    (made,) = (tmp_path / "second").glob("*.json")
    assert made.name.startswith("small_models.py-TINY")
    assert crossbench.load(made).results[0].details["numpy"] == np.__version__


def test_another_crossbench_runs_everything_again(earlier, monkeypatch):
    jobs, folder = make_jobs(JOBS), Folder(earlier)
    assert len(since.unchanged(folder, jobs)) == 2
    monkeypatch.setattr(since, "__version__", "99.0")
    assert since.unchanged(folder, jobs) == {}


def test_files_that_gzip_packed_are_earlier_results_too(earlier, tmp_path):
    for path in earlier.glob("*.json"):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert len(since.unchanged(Folder(tmp_path), make_jobs(JOBS))) == 2


def test_a_folder_that_is_not_there_gets_one_line(tmp_path):
    with pytest.raises(ResultsError, match="nowhere cannot be read: No such file"):
        crossbench.sweep(JOBS, tmp_path / "out", since=tmp_path / "nowhere")
    assert not (tmp_path / "out").exists()


def test_a_framework_that_is_not_installed_has_changed(earlier):
    comparison = crossbench.load(next(earlier.glob("*.json")))
    assert since.change(comparison) is None
    cell = comparison.results[0].cell
    object.__setattr__(cell, "framework", "nothing")
    assert "there is no framework 'nothing'" in since.change(comparison)
