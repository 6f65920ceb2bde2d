"""Check the wheel and the sdist: what they hold, and that the wheel runs outside of the clone."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from crossbench.workload import versions

ROOT = Path(__file__).parents[1]
NOT_SHIPPED = ("__pycache__", "Manifest")
"""What Python and Julia leave in the directories, by how the names begin."""


def build(directory, *targets):
    """Build the distributions of the sources in the working directory."""
    for target in targets:
        words = ["-m", "hatchling", "build", "-t", target, "-d", str(directory)]
        subprocess.run([sys.executable, *words], check=True, capture_output=True)


def contents(wheel):
    """Return the contents of a wheel's files by their names."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a directory with the wheel and the sdist of a clone in which Julia has run."""
    # without a network: hatchling is installed, as the tests' requirements say
    directory = tmp_path_factory.mktemp("built")
    clone = directory / "clone"
    clone.mkdir()
    for name in ("crossbench", "julia"):
        shutil.copytree(ROOT / name, clone / name, symlinks=True)
    for name in (".gitignore", "LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, clone)
    (clone / "julia" / "Manifest-v1.10.toml").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(clone)
        build(directory, "sdist", "wheel")
    return directory


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    package = {
        os.path.relpath(Path(directory) / name, ROOT)
        for directory, _, names in os.walk(ROOT / "crossbench", followlinks=True)
        for name in names
        if not name.startswith(NOT_SHIPPED) and not Path(directory).name.startswith(NOT_SHIPPED)
    }
    for name in ("Julia", "Flux", "Lux"):
        assert f"crossbench/julia/CrossBench{name}/src/CrossBench{name}.jl" in package
    assert {name for name in contents(wheel) if ".dist-info/" not in name} == package


def test_the_sdist_builds_the_same_wheel(built, wheel, tmp_path, monkeypatch):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)
    (sources,) = tmp_path.iterdir()
    monkeypatch.chdir(sources)
    build(tmp_path, "wheel")
    assert contents(tmp_path / wheel.name) == contents(wheel)


@pytest.fixture(scope="module")
def run(wheel, tmp_path_factory):
    """Return a function that runs Python outside of the clone, with the wheel unpacked, as an
    installer does. Its directory is on the path before the clone, if that is installed too.
    """
    site, elsewhere = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("elsewhere")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    def make(*words):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=elsewhere,
            env=os.environ | {"PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    make.site = site
    return make


@pytest.mark.long
def test_the_main_job_runs(run):
    small = ["--data", "synthetic", "--batches", "2", "--batch-size", "100", "--rounds", "1"]
    shown = run("-m", "crossbench", "--frameworks", "reference,torch", "--devices", "cpu", *small)
    assert "× fastest" in shown
    assert run("-c", "import crossbench; print(crossbench.__file__)").startswith(str(run.site))


RESOLVED = """
from juliapkg import deps
_, packages = deps.find_requirements()
(package,) = [package for package in packages if package.name == "CrossBenchJulia"]
print(package.dev, package.uuid, package.path)
"""


def test_the_julia_package_is_the_wheels(run):
    """What juliapkg would install, whether or not there is a Julia."""
    if not versions("juliapkg"):
        pytest.skip("juliapkg is not installed")
    dev, uuid, path = run("-c", RESOLVED).splitlines()[-1].split(maxsplit=2)
    assert dev == "True"
    assert Path(path) == run.site / "crossbench" / "julia" / "CrossBenchJulia"
    assert f'uuid = "{uuid}"' in (Path(path) / "Project.toml").read_text()
