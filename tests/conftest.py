"""What several tests need: small data, the test plugin, and which frameworks are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import write_cifar
from small_models import SMALL_MODELS

from crossbench import adapters, models
from crossbench.engine import parity

PLUGIN = Path(__file__).parent / "plugin"


def pytest_addoption(parser):
    parser.addoption("--adapters", default="reference,torch,jax", help="for the conformance suite")


def pytest_generate_tests(metafunc):
    if "adapter_name" in metafunc.fixturenames:
        metafunc.parametrize("adapter_name", metafunc.config.getoption("adapters").split(","))


@pytest.fixture
def adapter(adapter_name):
    found = adapters.get(adapter_name)
    if reason := found.available("cpu"):
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def lenet():
    return models.get("lenet")


@pytest.fixture(scope="session")
def small_model():
    return SMALL_MODELS["plain"]


@pytest.fixture(scope="session")
def expected(tmp_path_factory):
    """The reference's tensors of a model, computed once."""
    found = {}

    def of(model):
        key = (model.name, model.optimizer)
        if key not in found:
            directory = tmp_path_factory.mktemp("expected") / model.name
            found[key] = parity.reference(model, directory)
        return found[key]

    return of


@pytest.fixture
def cifar_directory(tmp_path):
    """100 images to train on, 20 to test on."""
    return write_cifar(tmp_path / "cifar")


@pytest.fixture
def plugin(monkeypatch):
    """The adapters of tests/plugin, for this process and its workers."""
    monkeypatch.syspath_prepend(PLUGIN)
    return PLUGIN
