"""Provide what several tests need: small data, the test plugin, and the chosen frameworks."""

from __future__ import annotations

import gc
import os
import pwd
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import same_process
from planting import Plant
from samples import write_cifar
from small_models import SMALL_MODELS, named
from threadpoolctl import threadpool_limits

import crossbench
from crossbench import adapters, models
from crossbench.engine import epoch_timer, parity, process, proofs, rounds
from crossbench.engine.environment import SHARED_CORES, kept_programs_environment
from crossbench.host.gpus import find_gpus
from crossbench.inputs.names import IDIOMATIC
from crossbench.results.machine import CHOOSE_INSTRUCTIONS
from crossbench.sweeps import job_process

PLUGIN = Path(__file__).parent / "plugin"
FAULTY = Path(__file__).parent / "faulty"
LONG_FILES = (
    "test_conformance",
    "test_keras",
    "test_run",
    "test_timed_faults",
    "test_dask_machines",
    "test_docs",
    "test_variants",
    "test_tasks",
    "test_jax_tuned",
    "test_gpu_rows",
)
TRIED = "reference,torch,jax,torch:channels_last,torch:tuned"
"""The adapters of the suites; the variants, which repeat them, with -m long."""


def pytest_addoption(parser):
    parser.addoption("--adapters", default=TRIED, help="for the conformance suite")
    parser.addoption("--devices", default="cpu", help="for the conformance suite: cpu,gpu")


def pytest_configure(config):
    """Set what a worker process that proves would find in its environment."""
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")  # for jax:tuned, whichever test is first
    for name in CHOOSE_INSTRUCTIONS:  # what ran with one is not published
        os.environ.pop(name, None)
    # as the engine does: the threads of two pytest workers would wait for one another busily
    threadpool_limits(1, user_api="blas")
    os.environ |= SHARED_CORES | os.environ
    names = config.getoption("adapters").split(",")
    if "gpu" in config.getoption("devices").split(","):
        os.environ |= find_gpus().environment(0)
        for name in names:
            os.environ |= of_name(name).required_environment("gpu")
    elif len(names) == 1:  # a backend of Keras, which has one for each process
        os.environ |= of_name(names[0]).required_environment("cpu")
    for name in names:  # many tests compile the same program
        os.environ |= kept_programs_environment(of_name(name), "cpu")


def of_name(name):
    """Return the adapter of a name such as "keras:jax"."""
    framework, variant = adapters.split(name)
    return adapters.get(framework, variant or IDIOMATIC)


WRITES = {"programs": "part_program", "training_programs": "training_program"}
"""What the programs of an adapter must have for tests with a mark."""


def writes(name, method):
    """Return whether an adapter that is named without a variant writes programs of a kind."""
    return name in adapters.names() and hasattr(adapters.get(name).programs, method)


def pytest_generate_tests(metafunc):
    for fixture, option in (("adapter_name", "adapters"), ("device", "devices")):
        if fixture in metafunc.fixturenames:
            names = metafunc.config.getoption(option).split(",")
            if metafunc.definition.get_closest_marker("idiomatic"):
                names = [name for name in names if ":" not in name]
            for mark, method in WRITES.items():
                if metafunc.definition.get_closest_marker(mark):
                    names = [name for name in names if name == "cpu" or writes(name, method)]
            repeat = metafunc.config.getoption(option) == TRIED
            params = [
                pytest.param(name, marks=[pytest.mark.long] if repeat and ":" in name else [])
                for name in names
            ]
            metafunc.parametrize(fixture, params)


@pytest.hookimpl(tryfirst=True)  # before those are deselected that are long
def pytest_collection_modifyitems(config, items):
    """Put the files that take minutes first, so that no pytest worker waits at the end; of the
    values of a parameter, leave those to the long suite that a mark "short" does not name.
    """
    for item in items if config.getoption("adapters") == TRIED else ():
        values = item.callspec.params if hasattr(item, "callspec") else {}
        for mark in item.iter_markers("short"):
            named = {name: kept for name, kept in mark.kwargs.items() if name in values}
            if any(values[name] not in kept for name, kept in named.items()):
                item.add_marker(pytest.mark.long)
    order = {name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Have this process answer what a run asks its workers, and run the jobs of a sweep, unless the
    test is long, or about processes; compute the reference of a model once.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity, "compute_reference", same_process.known_reference)
        if not any(map(item.get_closest_marker, ("processes", "long"))):
            patch.setattr(epoch_timer, "MIN_CPU_SECONDS", 0.01)
            patch.setattr(epoch_timer, "MAX_CPU_REPEATS", 5)
            for module in (process, proofs, rounds):
                patch.setattr(module, "WorkerProcess", same_process.start)
            patch.setattr(job_process, "_process", same_process.run_job)
        return (yield)


@pytest.fixture(autouse=True, scope="module")
def freed():
    """Free what workers in this process keep: a process of their own would have ended. JAX's
    programs take tens of memory maps each, of the 65,530 that Linux allows a process.
    """
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()


class OneVariant:
    """Build one variant of a framework, whatever the job says; else be its adapter."""

    def __init__(self, adapter, variant):
        self.adapter, self.variant = adapter, variant

    def __getattr__(self, name):
        return getattr(self.adapter, name)

    def build(self, job):
        return self.adapter.build(replace(job, variant=self.variant))


@pytest.fixture
def default_signals():
    """Restore the default handlers of SIGINT and SIGHUP, which a test's processes inherit.

    A shell's background jobs ignore SIGINT, what nohup starts ignores SIGHUP, and so do their
    children.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def adapter(adapter_name, device):
    _, variant = adapters.split(adapter_name)
    found = OneVariant(of_name(adapter_name), variant or IDIOMATIC)
    reason = find_gpus().unavailable_reason(0) if device == "gpu" else None
    if reason := reason or found.available(device):
        pytest.skip(reason)
    return found


@pytest.fixture
def plant(adapter_name, monkeypatch):
    """Plants a fault in the adapter and in its variant."""
    return Plant(adapter_name, monkeypatch)


@pytest.fixture
def installed():
    """Return a function that gives a framework's adapter, or skips the test without it."""

    def adapter(name):
        found = adapters.get(name)
        if reason := found.available("cpu"):
            pytest.skip(reason)
        return found

    return adapter


@pytest.fixture(scope="session")
def install_package(tmp_path_factory):
    """Return a function that installs a package into a folder without a network, and names it."""

    def install(package):
        site = tmp_path_factory.mktemp("site")  # hatchling is one of the tests' requirements
        offline = ["--no-deps", "--no-build-isolation", "--no-index", "--target", site, package]
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *offline], check=True)
        return str(site)

    return install


@pytest.fixture(scope="session")
def lenet():
    return models.get("lenet")


@pytest.fixture(scope="session")
def small_model():
    return SMALL_MODELS["plain"]


@pytest.fixture(scope="session")
def expected():
    """Return a function that gives the reference's tensors of a model."""
    return same_process.known_reference


@pytest.fixture
def cifar_directory(tmp_path):
    """Write 100 training and 20 test images, and return their directory."""
    return write_cifar(tmp_path / "cifar")


@pytest.fixture
def run(cifar_directory, small_model):
    """Return crossbench.run with a small model and small data."""

    def run(frameworks, **arguments):
        defaults = {"rounds": 1, "batch_size": 20, "model": small_model, "threads": 1}
        return crossbench.run(frameworks, data=cifar_directory, **(defaults | arguments))

    return run


@pytest.fixture
def no_home_directory(monkeypatch):
    """Remove the home directory, as in a container whose user id has no account."""

    def no_entry(_):
        raise KeyError("getpwuid(): uid not found")

    for name in ("CROSSBENCH_CACHE", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)


@pytest.fixture
def small_run(cifar_directory):
    """Return command line arguments that run the reference with a small model and small data."""
    fast = ["--frameworks", "reference", "--devices", "cpu", "--rounds", "1"]
    small = ["--batch-size", "50", "--threads", "1", "--data", str(cifar_directory)]
    return [*fast, *small, "--model", named("TINY")]


@pytest.fixture
def faulty(monkeypatch):
    """Install the adapters of tests/faulty for this process and its workers."""
    monkeypatch.syspath_prepend(FAULTY)


@pytest.fixture
def plugin(monkeypatch):
    """Install the adapters of tests/plugin for this process and its workers."""
    monkeypatch.syspath_prepend(PLUGIN)
    return PLUGIN
