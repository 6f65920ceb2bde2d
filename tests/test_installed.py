"""Check the messages about missing packages, and about another project named crossbench."""

import json

import pytest

from crossbench import benchmark, doctor
from crossbench.errors import SpecError
from crossbench.workload import DISTRIBUTION, missing


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that fakes an installed distribution. origin: its direct_url.json."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, version, origin=None):
        directory = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        directory.mkdir()
        (directory / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        if origin is not None:
            (directory / "direct_url.json").write_text(origin)

    return make


def test_installed_packages_are_not_missing():
    assert missing("torch", "numpy", "psutil") is None


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "",
        "{}",
        "not json",
        json.dumps({"url": "https://host/a.whl", "archive_info": {}}),
        json.dumps({"url": "file:///there", "dir_info": {}}),
    ],
)
def test_missing_packages_are_named_with_the_pip_command(install, origin):
    install(DISTRIBUTION, "0.0.0", origin)
    assert missing("jax", "numpy", "no-such-a", "no-such-b") == (
        "no-such-a, no-such-b are not installed: pip install no-such-a no-such-b"
    )


def test_in_an_editable_install_the_extra_is_named(install):
    install(DISTRIBUTION, "0.0.0", json.dumps({"url": "file:///x", "dir_info": {"editable": True}}))
    assert missing("jax", "no-such-a") == "no-such-a is not installed: pip install -e '.[jax]'"


def test_the_doctor_warns_of_another_project_of_that_name(install):
    assert "warning" not in doctor.report()
    install("crossbench", "1.0.5")
    assert "crossbench 1.0.5 from PyPI, a benchmark runner for browsers" in doctor.report()


@pytest.mark.usefixtures("plugin")
def test_without_any_framework_the_error_says_how_to_install_one(monkeypatch):
    monkeypatch.setattr("crossbench.adapters.names", lambda: ["absent", "reference"])
    with pytest.raises(SpecError, match="no framework is installed: absent is not installed: pip"):
        benchmark.run()
