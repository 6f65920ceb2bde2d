"""Test sweeps on a real Dask scheduler with two workers, on loopback."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress

import psutil
import pytest
from sweeping import (
    LONG,
    LONG_TOML,
    QUICK,
    QUICK_TOML,
    SLOW_TOML,
    other_host,
    span,
    sweep_command,
    wait_for_line,
    wait_until,
)

import crossbench
from crossbench import cli
from crossbench.inputs.errors import SpecError
from crossbench.sweeps.folder import Folder

pytestmark = pytest.mark.long
distributed = pytest.importorskip("distributed")
dask_machines = pytest.importorskip("crossbench.sweeps.dask_machines")

HOST, OTHER_HOST = "127.0.0.1", "127.0.0.2"


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder, stack, protocol="tcp", tls=()):
        self.folder, self.stack, self.tls, self.workers = folder, stack, tls, []
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        self.address = f"{protocol}://{HOST}:{self.port}"
        self.protocol = protocol
        self.start_scheduler()

    def start_scheduler(self):
        self.scheduler = self._start(
            *("scheduler", "--host", HOST, "--port", self.port, "--no-dashboard"),
            *("--protocol", self.protocol),
        )
        wait_until(self._listens)

    def start_worker(self, name, *options, host=HOST, before=(), threads=1):
        worker = self._start(
            *("worker", self.address, "--host", host, "--nthreads", threads, "--name", name),
            *("--no-dashboard", "--local-directory", self.folder / name, *options),
            before=before,
        )
        self.workers.append(worker)
        return worker

    def jobs(self):
        """Return the processes of the jobs that run on the workers."""
        below = {child.pid for worker in self.workers for child in _below(worker)}
        found = (p for p in psutil.process_iter(["cmdline"]) if p.pid in below)
        return [p for p in found if "crossbench.sweeps.job_process" in (p.info["cmdline"] or ())]

    def client(self):
        return self.stack.enter_context(distributed.Client(self.address, set_as_default=False))

    def _start(self, *words, before=()):
        log = (self.folder / "dask.log").open("a")
        command = [*before, sys.executable, "-m", "dask", *map(str, words), *self.tls]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        self.stack.callback(_stop, process)
        return process

    def _listens(self):
        with socket.socket() as trial:
            return trial.connect_ex((HOST, self.port)) == 0


def _stop(process):
    """Kill a process and all below it."""
    below = _below(process)
    process.kill()
    for child in below:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait()


def _below(process):
    """Return all processes below a process."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@contextmanager
def cluster_in(folder, **options):
    with ExitStack() as stack:
        yield Cluster(folder, stack, **options)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Return a scheduler with the workers one and two, of which two offers a GPU."""
    with cluster_in(tmp_path_factory.mktemp("dask")) as found:
        found.start_worker("one")
        found.start_worker("two", "--resources", "GPU=1")
        with distributed.Client(found.address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield found


def test_a_sweep_survives_a_killed_worker_and_a_restarted_scheduler(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(SLOW_TOML + 'seed = [0, 1]\nmachines = "each"\n')
    with cluster_in(tmp_path) as cluster:
        workers = [cluster.start_worker(name) for name in ("one", "two")]
        out = tmp_path / "out"
        process = sweep_command(file, "--out", out, "--dask", cluster.address)
        wait_for_line(process, " runs on ")
        wait_until(cluster.jobs)
        [job] = cluster.jobs()
        job.parent().kill()  # the Dask worker; its nanny starts another one
        wait_for_line(process, " done on ")
        _stop(cluster.scheduler)
        wait_for_line(process, "the scheduler does not answer")
        cluster.start_scheduler()
        for worker in workers:
            _stop(worker)
        wait_for_line(process, "no worker is there: waiting for one")
        wait_until(lambda: "runs" not in [task.state for task in Folder(out).read_state()])
        cluster.start_worker("three")
        wait_for_line(process, "a worker is there again")
        assert process.wait(180) == 0, process.stderr.read()
    comparisons = [crossbench.load(path) for path in out.glob("*.json")]
    assert sorted(c.settings.seed for c in comparisons) == [0, 1]
    spans = sorted(span(comparison) for comparison in comparisons)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_a_scheduler_that_stays_away_ends_the_sweep_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_machines, "RECONNECT_SECONDS", 3.0)
    with cluster_in(tmp_path) as cluster:
        cluster.start_worker("one")

        def stop_scheduler(tasks):
            if tasks[0].state == "runs":
                _stop(cluster.scheduler)

        with (
            dask_machines.connected(cluster.address, {}) as client,
            pytest.raises(SpecError, match=f"scheduler {cluster.address} is gone: start it, and"),
        ):
            crossbench.sweep([LONG], tmp_path / "out", client, on_update=stop_scheduler)
    assert [task.state for task in Folder(tmp_path / "out").read_state()] == ["queued"]


@pytest.fixture(params=["the worker's host", "another host"])
def running(request, cluster, tmp_path):
    """Return a sweep whose job runs on a worker, and lasts.

    On the worker's host a job also ends with its client; from another one Dask alone can end it.
    """
    file = tmp_path / "sweep.toml"
    file.write_text(LONG_TOML)
    before = other_host() if request.param == "another host" else ()
    words = (file, "--out", tmp_path / "out", "--dask", cluster.address)
    process = sweep_command(*words, before=before)
    wait_for_line(process, " runs on ")
    wait_until(cluster.jobs)
    return process


def test_a_stopped_sweep_leaves_no_job_on_a_worker(cluster, running, tmp_path):
    running.terminate()
    assert running.wait(60) == 143
    assert not cluster.jobs()
    assert [task.state for task in Folder(tmp_path / "out").read_state()] == ["queued"]


def test_a_killed_client_leaves_no_job_on_a_worker(cluster, running):
    running.kill()
    running.wait()
    wait_until(lambda: not cluster.jobs())


def test_resources_and_names_choose_the_worker(cluster, tmp_path):
    client = cluster.client()
    known = client.scheduler_info(n_workers=-1)["workers"]
    addresses = {info["name"]: address for address, info in known.items()}
    for names, offers, name in (((), {"GPU": 1}, "two"), (("on*",), {}, "one")):
        pool = dask_machines.DaskMachines(client, names, offers)
        assert list(pool._workers()) == [addresses[name]]
    [task] = crossbench.sweep([QUICK], tmp_path, client, workers="two")
    assert task.state == "done"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": "nobody-*"}, "has no worker named nobody-.: start one"),
        ({"resources": {"GPU": 2}}, "has no worker with GPU=2: start one"),
    ],
)
def test_a_filter_that_no_worker_passes_is_said(cluster, tmp_path, monkeypatch, options, message):
    monkeypatch.setattr(dask_machines, "FIRST_WORKER_SECONDS", 1.0)
    with pytest.raises(SpecError, match=message):
        crossbench.sweep([QUICK], tmp_path, cluster.client(), **options)


def test_a_worker_with_several_threads_is_refused(tmp_path):
    with cluster_in(tmp_path) as cluster:
        cluster.start_worker("many", threads=2)
        with pytest.raises(SpecError, match=r"many .* has 2 threads.*start it with --nthreads 1"):
            crossbench.sweep([QUICK], tmp_path / "out", cluster.client())


def test_two_machines_of_one_address_are_refused(tmp_path):
    """Their jobs could not be told apart, and could run at the same time."""
    with cluster_in(tmp_path) as cluster:
        cluster.start_worker("one")
        cluster.start_worker("two", before=other_host())
        client = cluster.client()
        client.wait_for_workers(2, timeout=60)
        with pytest.raises(SpecError, match=f"have the same address {HOST}: start one worker on"):
            crossbench.sweep([QUICK], tmp_path / "out", client)


def test_every_machine_runs_every_job_or_it_is_said_that_it_is_gone(tmp_path, monkeypatch):
    other = other_host()
    monkeypatch.setattr(dask_machines, "GONE_SECONDS", 2.0)
    monkeypatch.setattr(dask_machines, "LOOK_SECONDS", 0.5)
    here = socket.gethostname()
    with cluster_in(tmp_path) as cluster:
        cluster.start_worker("one")
        second = cluster.start_worker("two", host=OTHER_HOST, before=other)
        client = cluster.client()
        client.wait_for_workers(2, timeout=60)
        tasks = crossbench.sweep([QUICK], tmp_path / "out", client, machines="each")
        assert {(task.machine, task.state) for task in tasks} == {(here, "done"), ("other", "done")}
        found = [crossbench.load(path) for path in (tmp_path / "out").glob("*.json")]
        assert sorted(c.machine.name for c in found) == sorted([here, "other"])

        def stop_second(tasks):
            if any(task.machine == "other" and task.state == "runs" for task in tasks):
                _stop(second)

        jobs = [QUICK, QUICK | {"seed": 1}]
        tasks = crossbench.sweep(
            jobs, tmp_path / "out", client, machines="each", on_update=stop_second
        )
        states = {(task.machine, "seed-1" in task.name): task for task in tasks}
        assert states[here, True].state == "done"
        assert states["other", True].reason == "other is gone"


def test_tls_is_passed_on(tmp_path, monkeypatch, capsys):
    pytest.importorskip("cryptography")
    temporary = distributed.Security.temporary()
    files = {}
    for name in ("tls_ca_file", "tls_client_cert", "tls_client_key"):
        files[name] = tmp_path / f"{name}.pem"
        files[name].write_text(getattr(temporary, name))
    ca, certificate, key = files.values()
    options = ("--tls-ca-file", str(ca), "--tls-cert", str(certificate), "--tls-key", str(key))
    file = tmp_path / "sweep.toml"
    file.write_text(QUICK_TOML)
    with cluster_in(tmp_path, protocol="tls", tls=options) as cluster:
        cluster.start_worker("one")
        process = sweep_command(
            file, "--out", tmp_path / "out", "--dask", cluster.address, *options
        )
        assert process.wait(120) == 0, process.stderr.read()
        monkeypatch.setattr(dask_machines, "CONNECT_SECONDS", 3.0)
        words = ["sweep", str(file), "--out", str(tmp_path / "no"), "--dask", cluster.address]
        assert cli.main(words) == 2
        assert "does not answer" in capsys.readouterr().err
    assert len(list((tmp_path / "out").glob("*.json"))) == 1


def test_certificates_without_a_scheduler_or_a_file_are_refused(tmp_path, capsys):
    file = tmp_path / "sweep.toml"
    file.write_text(QUICK_TOML)
    words = ["sweep", str(file), "--out", str(tmp_path / "out"), "--tls-key", "nowhere.pem"]
    assert cli.main(words) == 2
    assert "certificates are for a Dask scheduler" in capsys.readouterr().err
    assert cli.main([*words, "--dask", f"tls://{HOST}:9"]) == 2
    assert "nowhere.pem does not exist" in capsys.readouterr().err
