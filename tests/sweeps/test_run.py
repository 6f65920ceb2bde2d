"""Test sweeps on this machine: what is kept, what is run again, and what stops them."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from sweeping import LONG_TOML, QUICK, QUICK_TOML, sweep_command, wait_for_line, wait_until

import crossbench
from crossbench import cli
from crossbench.inputs.errors import CrossbenchError, ResultsError, SpecError
from crossbench.sweeps import job_process, run
from crossbench.sweeps.folder import Folder, Task
from crossbench.sweeps.jobs import make_jobs

JOBS = [QUICK | {"seed": seed} for seed in (0, 1)]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Return the folder of a sweep of two jobs, what it said, and its tasks."""
    folder, said = tmp_path_factory.mktemp("done"), []
    return folder, said, crossbench.sweep(JOBS, folder, progress=said.append)


@pytest.fixture
def copied(done, tmp_path):
    """Return a copy of that folder, to write to."""
    return shutil.copytree(done[0], tmp_path / "copied")


def test_a_sweep_keeps_the_results_file_of_each_job(done):
    folder, said, tasks = done
    assert [task.state for task in tasks] == ["done", "done"]
    comparisons = [crossbench.load(folder / f"{task.name}.json") for task in tasks]
    assert [c.settings.seed for c in comparisons] == [0, 1]
    assert {c.machine.name for c in comparisons} == {os.uname().nodename}
    assert said[-1].endswith("(2 of 2 jobs ended)")


def test_what_is_in_the_folder_is_not_run_again_gzip_packed_or_not(done, copied):
    path = copied / f"{done[2][0].name}.json"
    (copied / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    said = []
    assert crossbench.sweep(JOBS, copied, progress=said.append) == done[2]
    assert not any("runs" in line for line in said)


def test_a_job_that_lacks_is_run_and_its_name_may_have_changed(copied):
    names = {path.name for path in copied.glob("*.json")}
    kept = crossbench.sweep([*JOBS, QUICK | {"seed": 2}], copied)
    assert [task.state for task in kept] == ["done"] * 3
    assert {path.name for path in copied.glob("*.json")} > names


def test_status_lists_the_jobs(done, tmp_path, capsys):
    assert cli.main(["status", str(done[0])]) == 0
    shown = capsys.readouterr().out
    assert shown.rstrip().endswith("2 jobs: 2 done")
    assert all(task.name in shown for task in done[2])
    assert cli.main(["status", str(tmp_path)]) == 2
    assert "is not the folder of a sweep" in capsys.readouterr().err


def test_a_folder_with_other_results_is_refused(copied):
    with pytest.raises(
        ResultsError, match=r"not of this sweep, such as small_models\.py-FITTED-seed-1-\w+:"
    ):
        crossbench.sweep([QUICK | {"seed": 0}], copied)


def test_other_data_than_that_of_a_job_before_fails_in_a_line(copied):
    tasks = Folder(copied).read_state()
    tasks[0].sha256 = "0" * 64
    Folder(copied).write_state(tasks)
    jobs = [*JOBS, QUICK | {"seed": 0, "rounds": 2}]
    failed = crossbench.sweep(jobs, copied)[-1]
    assert failed.state == "failed"
    assert "its data differs from that of small_models.py-FITTED-seed-0" in failed.reason
    assert not list(copied.glob(f"*{make_jobs(jobs)[-1].digest}*"))


def test_a_job_that_fails_says_why_and_the_others_go_on(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    jobs = [QUICK | {"data": str(empty)}, QUICK]
    failed, kept = crossbench.sweep(jobs, tmp_path / "out")
    assert (failed.state, kept.state) == ("failed", "done")
    assert str(empty) in failed.reason
    assert "\n" not in failed.reason


def test_a_job_that_this_machine_cannot_run_is_said_before_anything_runs(tmp_path):
    impossible = QUICK | {"threads": 4096}
    with pytest.raises(SpecError, match=r"threads is 4096.*--keep-going runs the other jobs"):
        crossbench.sweep([QUICK, impossible], tmp_path)
    assert not list(tmp_path.glob("*.json"))
    with pytest.raises(SpecError, match="it cannot run here: threads is 4096"):
        crossbench.sweep([impossible], tmp_path, keep_going=True)
    ran, failed = crossbench.sweep([QUICK, impossible], tmp_path, keep_going=True)
    assert (ran.state, failed.state) == ("done", "failed")
    with pytest.raises(SpecError, match=r"reference gpu:99: "):
        crossbench.sweep([QUICK | {"devices": "gpu:99"}], tmp_path / "out")


def test_a_row_that_failed_makes_a_job_incomplete(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(
        "from crossbench.adapters.reference import ADAPTER\n"
        "class Broken(type(ADAPTER)):\n"
        "    def build(self, job):\n"
        "        raise ValueError('broken on purpose')\n"
        "BROKEN = Broken()\n"
    )
    job = QUICK | {"frameworks": f"reference,{file}:BROKEN"}
    [task] = crossbench.sweep([job], tmp_path / "out")
    assert task.state == "incomplete"
    assert "broken on purpose" in task.reason
    assert (tmp_path / "out" / f"{task.name}.json").exists()


def test_what_failed_after_the_rounds_makes_a_job_incomplete(done):
    folder, _, (task, _) = done
    comparison = crossbench.load(folder / f"{task.name}.json")
    assert job_process.incomplete_words(comparison) is None
    comparison.results[0].extra_problem = "its training to the target failed"
    words = "reference cpu: its training to the target failed"
    assert job_process.incomplete_words(comparison) == words


def test_a_job_waits_for_another_ones_lock_on_the_host(tmp_path):
    lock = job_process._open_lock()
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        process = sweep_command(_file(tmp_path, QUICK_TOML), "--out", tmp_path / "out")
        wait_for_line(process, " waits on ")
        assert not _jobs(process)
    finally:
        os.close(lock)
    wait_for_line(process, " runs on ")
    assert process.wait(120) == 0


@pytest.fixture
def running(tmp_path):
    """Return a sweep of two jobs that take long, and the processes of the first one."""
    file = _file(tmp_path, LONG_TOML + "seed = [0, 1]\n")
    process = sweep_command(file, "--out", tmp_path / "out")
    wait_for_line(process, " runs on ")
    wait_until(lambda: _jobs(process))
    job = _jobs(process)[0]
    wait_until(lambda: job.children())
    return process, [job, *job.children(recursive=True)]


@pytest.mark.short(number=(signal.SIGINT,))
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_job_and_the_same_command_goes_on(running, tmp_path, number):
    process, below = running
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert not [p for p in below if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    tasks = Folder(tmp_path / "out").read_state()
    assert [task.state for task in tasks] == ["queued", "queued"]


def test_a_killed_sweep_leaves_no_process(running, tmp_path):
    process, below = running
    process.kill()
    process.wait()
    wait_until(lambda: not [p for p in below if p.is_running()])
    assert Folder(tmp_path / "out").is_held() is False


def test_a_second_sweep_into_the_folder_is_refused(tmp_path):
    folder = Folder(tmp_path)
    with folder.held(), pytest.raises(ResultsError, match="another sweep writes to"):
        crossbench.sweep([QUICK], tmp_path)


def test_results_go_to_any_file_system(tmp_path):
    [task] = crossbench.sweep([QUICK], f"file://{tmp_path}/out")
    assert task.state == "done"
    assert (tmp_path / "out" / f"{task.name}.json").exists()


def test_a_folder_in_an_object_store_is_read_and_written():
    folder = Folder("memory://sweep/one")
    with folder.held():
        folder.write("lenet-01234567.json", b"{}")
        folder.write_state([Task("lenet-01234567")])
    assert folder.results() == ["lenet-01234567"]
    assert folder.read_state() == [Task("lenet-01234567")]
    assert folder.is_held() is None


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("nosuch://bucket/x", "nosuch://bucket/x: "),
        ("/proc/nothing", "/proc/nothing cannot be written: "),
    ],
)
def test_a_folder_that_cannot_be_written_is_named(out, message):
    with pytest.raises(CrossbenchError, match=message) as error:
        crossbench.sweep([QUICK], out)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": "gpu-*"}, "workers and resources are those of Dask"),
        (
            {"client": ThreadPoolExecutor(1)},
            "client must be a synchronous Dask client",
        ),
        ({"machines": "some"}, "machines must be any or each"),
    ],
)
def test_wrong_options_are_refused_in_a_line(tmp_path, options, message):
    with pytest.raises(SpecError, match=message):
        crossbench.sweep([QUICK], tmp_path, **options)


def test_a_machine_with_other_versions_is_refused_and_if_it_joins_later_runs_nothing(
    tmp_path, monkeypatch
):
    there, other = job_process.versions(), "crossbench 9, Python 3.99"
    (job,) = make_jobs([QUICK])
    task, content = job_process.run_job(job.name, job.arguments, other, lambda: False)
    assert content is None
    assert task.reason == f"it has {there}, the client {other}"
    monkeypatch.setattr(run, "versions", lambda: other)
    with pytest.raises(SpecError, match=f"has crossbench .*, but here is {other}"):
        crossbench.sweep([QUICK], tmp_path)


def test_a_host_lock_that_cannot_be_taken_runs_nothing(tmp_path, monkeypatch):
    """Without it two jobs could measure at once; a folder or a results file does without."""

    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    (job,) = make_jobs([QUICK])
    versions = job_process.versions()
    task, content = job_process.run_job(job.name, job.arguments, versions, lambda: False)
    assert content is None
    assert "crossbench-host.lock cannot be locked (No locks available)" in task.reason
    with Folder(tmp_path / "out").held():
        assert Folder(tmp_path / "out").is_held() is False


def test_a_state_that_cannot_be_read_is_not_taken_for_a_new_sweep(tmp_path):
    (tmp_path / "sweep.state").mkdir()
    for read in (Folder(tmp_path).read_state, lambda: crossbench.sweep([QUICK], tmp_path)):
        with pytest.raises(ResultsError, match=r"cannot be read: Is a directory"):
            read()


def _file(folder, text):
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


def _jobs(process):
    """Return the processes of the jobs that a sweep runs."""
    found = (p for p in psutil.process_iter(["ppid", "cmdline"]) if p.info["ppid"] == process.pid)
    return [p for p in found if "crossbench.sweeps.job_process" in (p.info["cmdline"] or ())]
