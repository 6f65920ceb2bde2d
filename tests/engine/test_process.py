"""Test real worker processes, with adapters that misbehave in every way that was seen."""

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import psutil
import pytest
from samples import write_cifar
from small_models import TINY

from crossbench.data import cifar10
from crossbench.engine import parity, process as process_module, replies
from crossbench.engine.assignment import Assignment, save_arrays
from crossbench.engine.environment import environment, proof_environment, user_settings
from crossbench.engine.process import WorkerFailure, WorkerProcess
from crossbench.engine.worker import StartReply, Worker
from crossbench.host.machine import usable_cpus
from crossbench.workload import Job

pytestmark = [pytest.mark.usefixtures("plugin"), pytest.mark.processes]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return the folder of a small data set, as workers map it into their memory."""
    folder = tmp_path_factory.mktemp("data")
    save_arrays(cifar10.load_path(write_cifar(folder / "cifar")), folder)
    return folder


def assigned(framework, data, threads=1):
    return Assignment(framework, Job(TINY, "cpu", threads, "float32"), data, 10, 10, 0)


@pytest.fixture
def worker(data):
    """Starts a worker for an adapter; all are ended after the test."""
    started = []

    def start(framework, threads=1, timeout=60):
        started.append(WorkerProcess(assigned(framework, data, threads), timeout))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture(scope="module")
def reference(data):
    """Yield a worker that has started, whose user has set variables that the job decides, and
    has a Path on the path of modules.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "0")
        patch.setenv("OMP_NUM_THREADS", "64")
        patch.setenv("NPROC", "64")  # XLA's
        patch.setattr(sys, "path", [data, *sys.path, data])
        process = WorkerProcess(assigned("reference", data), 60)
    with process:
        assert "numpy" in process.ask("start").details
        yield process


def test_a_worker_trains_rounds_and_tests_them(reference):
    first = [reference.ask("epoch", 1, number, 10) for number in range(3)]
    again = [reference.ask("epoch", 2, number, 10) for number in range(2)]
    assert [(e.round, e.epoch, len(e.losses)) for e in (*first, *again)] == [
        *((1, 0, 10), (1, 1, 10), (1, 2, 10)),
        *((2, 0, 10), (2, 1, 10)),
    ]
    assert all(e.wall_seconds > 0 and e.cpu_seconds > 0 for e in first)
    assert reference.ask("final_stats").peak_memory > 10_000_000
    assert 0 <= reference.ask("test").accuracy <= 1
    # a steady epoch cannot reuse what the first epoch computed: it starts from other weights
    cold, steady, further = (epoch.losses for epoch in first)
    assert 1e-6 < abs(cold[0] / steady[0] - 1) < 0.1
    assert [epoch.losses for epoch in again] == [cold, steady]
    assert steady != further


@pytest.mark.usefixtures("default_signals")
def test_a_process_that_ctrl_c_interrupts_at_its_start_is_stopped(data, monkeypatch):
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            signal.raise_signal(signal.SIGINT)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        WorkerProcess(assigned("reference", data), 60)
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_threads_are_limited_by_the_cpu_affinity(reference):
    reference.ask("epoch", 1, 0, 10)  # there are none of a worker that did nothing
    assert reference.ask("final_stats").cpus_allowed == 1
    assert psutil.Process(reference.process.pid).cpu_affinity() == usable_cpus()[:1]
    assert os.sched_getaffinity(0) == set(usable_cpus())  # the parent's own is left alone


def test_a_worker_has_the_users_environment_but_for_what_the_job_decides(reference, data):
    environment = psutil.Process(reference.process.pid).environ()
    assert environment["OMP_NUM_THREADS"] == environment["NPROC"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""  # none is for a row on the CPU
    assert environment["HOME"] == os.environ["HOME"]
    assert environment["TMPDIR"] == str(data / "tmp")
    assert (data / "tmp").is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has the score")
def test_where_memory_runs_out_linux_kills_a_worker_before_its_parent(reference):
    pids = ("self", reference.process.pid)
    scores = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in pids]
    assert scores[0] < scores[1] <= 1000 or scores == [1000, 1000]


def test_proofs_that_run_at_a_time_have_cpus_of_their_own(data, monkeypatch):
    monkeypatch.setattr(process_module, "usable_cpus", lambda: [0, 2, 4, 1])
    monkeypatch.setattr(process_module, "PROOFS", count())
    two = assigned("reference", data, threads=2)
    assert [process_module._cpus(two, True) for _ in range(3)] == [[0, 2], [4, 1], [0, 2]]
    assert process_module._cpus(two, False) == [0, 2]  # what is timed has always the same ones


@pytest.mark.parametrize(
    ("framework", "reason"),
    [
        ("dies", "the worker process exited with status 7: the last words"),
        ("killed", r"the worker process was killed by SIGKILL \(out of memory\?\)"),
        ("hangs", r"no answer within 1 s \(timeout\)"),
        ("cuts", "the worker process exited with status 5"),  # in the middle of its answer
        pytest.param(
            *("lives_on", "the worker process closed the connection to its parent"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_failure_has_its_reason_in_one_line(worker, framework, reason):
    process = worker(framework)
    process.ask("start")
    if framework == "hangs":
        process.timeout = 1  # not before: a start takes as long as the machine is busy
    cpu, wall = time.process_time(), time.perf_counter()
    with pytest.raises(WorkerFailure, match=reason):
        process.ask("epoch", 1, 0, 10)
    if framework == "hangs":  # the parent uses no core while it waits
        assert time.process_time() - cpu < 0.1 * (time.perf_counter() - wall)
    assert process.process.poll() is not None


def test_a_framework_may_use_the_standard_streams(worker):
    process = worker("prints")
    process.ask("start")
    for number in (1, 2):
        assert process.ask("epoch", number, 0, 10).round == number
        time.sleep(0.5)  # the worker waits for its next request


def test_what_the_user_set_of_the_speed_is_told_but_for_what_the_run_sets(monkeypatch):
    told = {"XLA_FLAGS", "OPENBLAS_CORETYPE", "LD_PRELOAD"}
    not_told = {"OMP_NUM_THREADS", "JAX_PLATFORMS"}  # the adapter sets the second
    not_told |= {"CUDA_HOME", "KMP_DUPLICATE_LIB_OK", "CUDA_VISIBLE_DEVICES", "TF_CLI_CONFIG_FILE"}
    not_told |= {"TF_XLA_FLAGS"}  # no row is TensorFlow's
    for name in told | not_told:
        monkeypatch.setenv(name, "set")
    found = user_settings([("reference", "idiomatic"), ("jax", "tuned")])
    assert found.keys() & (told | not_told) == told
    assert found["XLA_FLAGS"] == "set"
    assert "TF_XLA_FLAGS" in user_settings([("keras", "idiomatic")])


def test_what_a_worker_did_before_the_reference_was_known_is_done_again_for_another_seed(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(parity.examples, "SEED", parity.SEED + 1)  # as after a near tie
    expected = parity.expected.compute_reference(TINY, tmp_path / "expected")
    worker = Worker(assigned("reference", tmp_path))
    worker.observe(TINY)
    assert worker.observed.seed != expected.seed
    proof = worker.prove_parity(TINY, expected)
    assert proof.agrees
    assert max(proof.float64.values()) == 0


@pytest.mark.usefixtures("no_home_directory")
def test_how_threads_wait_is_set_for_proofs_alone_unless_the_user_says_otherwise(data, monkeypatch):
    """What a worker times alone must not change. Without a home there is no cache of proofs."""
    task = assigned("reference", data)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert "OMP_WAIT_POLICY" not in environment(task)
    assert proof_environment(task)["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert proof_environment(task)["OMP_WAIT_POLICY"] == "ACTIVE"


@pytest.mark.parametrize(
    "content",
    [
        b'{"type":"answer","value":{"details":{},"threads":0,"source_code":""}}',
        b'{"type":"failure","error":"\xff"}',
        b"\x80\x04N.",  # a pickle
    ],
)
def test_a_reply_of_another_type_cannot_be_read(content):
    with pytest.raises(replies.UnreadableReply):
        replies.decode(content, StartReply)


def test_a_connection_held_open_by_a_child_does_not_delay_the_failure(
    worker, tmp_path, monkeypatch
):
    monkeypatch.setenv("CROSSBENCH_TEST_NOTES", str(tmp_path / "children"))
    process = worker("dies_with_a_child", timeout=600)
    process.ask("start")
    try:
        with pytest.raises(WorkerFailure, match="the worker process exited with status 7"):
            process.ask("epoch", 1, 0, 10)
    finally:
        os.kill(int((tmp_path / "children").read_text()), signal.SIGKILL)


@pytest.mark.long
def test_a_request_that_nobody_reads_ends_at_the_timeout(worker):
    process = worker("hangs", timeout=2)
    os.kill(process.process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerFailure, match="no answer within 2 s"):
        process.ask("start", "x" * 1_000_000)


def test_a_worker_that_cannot_be_started_is_a_failure(worker, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/not/there")
    with pytest.raises(WorkerFailure, match=r"cannot be started: .*No such file"):
        worker("reference")


@pytest.mark.parametrize("call", ["end_with_parent(0)", "watch_parent(0, 0.05); time.sleep(60)"])
def test_a_process_whose_parent_has_ended_ends(call):
    """The second is for systems whose kernel sends no signal then."""
    program = f"import time; from crossbench.engine.orphan import *; {call}"
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 1
