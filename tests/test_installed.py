"""What is said of packages that are missing, and of another project's that is there."""

import json

import pytest

from crossbench import benchmark, doctor
from crossbench.errors import SpecError
from crossbench.workload import DISTRIBUTION, missing


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes a distribution look installed, before all that are; origin: its direct_url.json."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, version, origin=None):
        directory = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        directory.mkdir()
        (directory / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        if origin is not None:
            (directory / "direct_url.json").write_text(origin)

    return make


def test_what_is_installed_is_not_missing():
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
def test_missing_packages_are_named_as_pip_knows_them(install, origin):
    install(DISTRIBUTION, "0.0.0", origin)
    assert missing("jax", "numpy", "no-such-a", "no-such-b") == (
        "no-such-a, no-such-b are not installed: pip install no-such-a no-such-b"
    )


def test_in_a_clone_its_extra_is_named(install):
    install(DISTRIBUTION, "0.0.0", json.dumps({"url": "file:///x", "dir_info": {"editable": True}}))
    assert missing("jax", "no-such-a") == "no-such-a is not installed: pip install -e '.[jax]'"


def test_the_doctor_tells_of_another_project_of_that_name(install):
    assert "warning" not in doctor.report()
    install("crossbench", "1.0.5")
    assert "the distribution crossbench 1.0.5, a benchmark runner for browsers" in doctor.report()


@pytest.mark.usefixtures("plugin")
def test_without_any_framework_each_says_what_to_do(monkeypatch):
    monkeypatch.setattr("crossbench.adapters.names", lambda: ["absent", "reference"])
    with pytest.raises(SpecError, match="no framework is installed: absent is not installed: pip"):
        benchmark.run()
