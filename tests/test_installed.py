"""Check the messages about missing packages, and about another project named crossbench."""

import json
import re
import sys
from pathlib import Path

import pytest

from crossbench import benchmark, cli
from crossbench.commands import doctor
from crossbench.inputs.errors import ResultsError, SpecError
from crossbench.sweeps.folder import Folder
from crossbench.workload import DISTRIBUTION, missing

ROOT = Path(__file__).parents[1]
OWN_NAME = re.compile(
    r"\b(?:pipx?|uv)(?:\s\w+)*?\s(?:install|add)\s[^`&|;\n]*?"
    r"(?:(?<![\w./])crossbench(?:[-_]frameworks)?(?![\w./-])|\{DISTRIBUTION\})"
)
"""A command that asks an index for crossbench: there both names may be other people's."""


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


@pytest.mark.parametrize("origin", [None, "{}", "not json", '{"dir_info": {}}'])
def test_missing_packages_are_named_with_the_pip_command(install, origin):
    install(DISTRIBUTION, "0.0.0", origin)
    assert missing("torch", "numpy", "psutil") is None
    assert missing("jax", "numpy", "no-such-a", "no-such-b") == (
        "no-such-a, no-such-b are not installed: pip install no-such-a no-such-b"
    )


def test_in_an_editable_install_the_extra_is_named(install):
    install(DISTRIBUTION, "0.0.0", json.dumps({"url": "file:///x", "dir_info": {"editable": True}}))
    assert missing("jax", "no-such-a") == "no-such-a is not installed: pip install -e '.[jax]'"


def test_the_doctor_warns_of_another_project_of_that_name(install, monkeypatch):
    monkeypatch.setattr("crossbench.adapters.names", lambda: ["reference"])
    assert "warning" not in doctor.report()
    install("crossbench", "1.0.5")
    assert "crossbench 1.0.5 from PyPI, a benchmark runner for browsers" in doctor.report()


@pytest.mark.usefixtures("plugin")
def test_without_any_framework_the_error_says_how_to_install_one(monkeypatch):
    monkeypatch.setattr("crossbench.adapters.names", lambda: ["absent", "reference"])
    with pytest.raises(SpecError, match="no framework is installed: absent is not installed: pip"):
        benchmark.run()


def test_without_dask_the_error_says_how_to_install_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "crossbench.sweeps.dask_machines", raising=False)
    monkeypatch.setattr("crossbench.workload.versions", lambda *packages: {})
    file = tmp_path / "sweep.toml"
    file.write_text("seed = 0\n")
    words = ["sweep", str(file), "--out", str(tmp_path / "out"), "--dask", "tcp://host:1"]
    assert cli.main(words) == 2
    assert "distributed is not installed: pip install " in capsys.readouterr().err


def test_without_universal_pathlib_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "upath", None)
    monkeypatch.setattr("crossbench.workload.versions", lambda *packages: {})
    with pytest.raises(ResultsError, match="universal-pathlib is not installed: pip install "):
        Folder("memory://sweep")


def test_no_command_asks_an_index_for_crossbench():
    paths = [
        path
        for name in (".github", "benchmarks", "crossbench", "docs", "examples", "julia", "scripts")
        for path in (ROOT / name).rglob("*")
    ]
    paths += [path for path in (ROOT / "tests").rglob("*") if path != Path(__file__)]
    for path in [*paths, *ROOT.glob("*.*")]:
        if path.suffix in {".jl", ".md", ".py", ".sh", ".toml", ".txt", ".yml"}:
            joined = re.sub(r"""["']\s*\n\s*f?["']""", "", path.read_text())  # adjacent literals
            assert OWN_NAME.findall(joined) == [], path
