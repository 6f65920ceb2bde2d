"""Find, install and start Julia.

juliapkg finds or downloads Julia, and installs the packages of crossbench/juliapkg.json, and those
of the frameworks that were asked for, into one project in the virtual environment (under
julia_env). Importing juliacall starts Julia, in the worker process. Setting both
PYTHON_JULIACALL_EXE and PYTHON_JULIACALL_PROJECT bypasses juliapkg.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..workload import Unavailable
from .definitions import JULIA_FOLDER

DOWNLOAD = "https://julialang.org/downloads"
PACKAGES = ("PythonCall", "CrossBenchJulia")
"""Julia's packages that every framework needs."""
PACKAGE_SERVER = "https://pkg.julialang.org"
"""Pkg's default package server."""
JULIA_TESTED = "1.10.8"
"""The newest Julia that crossbench's tests have passed with."""
NETWORK_SECONDS = 8.0
"""Seconds to wait for an answer: juliapkg and Pkg would wait forever, or for minutes."""
ANSWER_SECONDS = 20.0
"""Seconds that `julia --version` and the like may take."""
OFFLINE = "PYTHON_JULIAPKG_OFFLINE"
"""The variable that forbids juliapkg to download anything."""
FIND_PACKAGES = "foreach(println, filter(isnothing ∘ Base.find_package, ARGS))"
"""Julia's program that prints which of the packages in its arguments a project does not have."""
_NO_JULIA = f"Julia is not installed and cannot be downloaded ({{}}): install it from {DOWNLOAD}"
_NO_PACKAGES = "the packages for Julia {1} ({0}) cannot be installed: {2}"


@dataclass(frozen=True)
class Package:
    """Names a registered package of Julia. version: as in the compat section of a project. tested:
    the newest one that crossbench's tests have passed with.
    """

    uuid: str
    version: str | None = None
    tested: str | None = None


@dataclass(frozen=True)
class Packages:
    """Names the packages in Julia that a framework needs.

    title: the framework's, for messages. own: crossbench's package for it, which the worker
    imports, in a folder of that name. registered: the others, by name. on_gpu: those that a GPU
    needs too.
    """

    title: str
    own: str
    uuid: str
    registered: dict[str, Package]
    on_gpu: dict[str, Package]

    def of_device(self, device: str) -> dict[str, Package]:
        """Return the registered packages that a device needs, by name."""
        return self.registered | (self.on_gpu if device == "gpu" else {})

    def untested(self, versions: dict[str, str]) -> str:
        """Return those versions that are newer than the tested ones: "Flux 0.17.0"; "" for none."""
        tested = {name: package.tested for name, package in self.registered.items()}
        tested["Julia"] = JULIA_TESTED
        newer = [
            f"{name} {version}"
            for name, version in versions.items()
            if (known := tested.get(name)) and _numbers(version) > _numbers(known)
        ]
        return ", ".join(newer)


def find() -> tuple[str, str] | None:
    """Return the path and the version of the installed Julia, or None if there is none.

    Raises Unavailable if it does not work.
    """
    named = os.environ.get("PYTHON_JULIACALL_EXE") or os.environ.get("PYTHON_JULIAPKG_EXE")
    exe = shutil.which(named or "julia")
    if exe is None:
        if named:
            raise Unavailable(
                f"{named} is not an executable: correct PYTHON_JULIACALL_EXE or PYTHON_JULIAPKG_EXE"
            )
        return None
    run = _run(exe, "--version")
    words = run.stdout.split()
    if run.returncode or words[:2] != ["julia", "version"]:
        raise Unavailable(f"{exe} is not a working Julia: --version exits with {run.returncode}")
    return exe, words[2]


def is_installed(packages: Packages) -> bool:
    """Return whether the Julia project has a framework's packages, by what it lists."""
    return packages.own in _dependencies("Project.toml")


def installed_versions(packages: Packages) -> dict[str, str]:
    """Return the versions of a framework's packages in the Julia project, by what it lists."""
    listed = _dependencies("Manifest.toml")
    found = {name: listed.get(name, [{}])[0].get("version") for name in packages.registered}
    return {name: version for name, version in found.items() if version}


def _dependencies(file: str) -> dict[str, Any]:
    """Return what a file of the Julia project lists; nothing where there is none that is TOML."""
    try:
        return tomllib.loads((_project() / file).read_text()).get("deps", {})
    except (OSError, ValueError):
        return {}


def _project() -> Path:
    """Return the directory of the Julia project, which juliapkg decides over in the same way.

    A plan asks for it, and imports no framework and nothing that belongs to one.
    """
    for variable in ("PYTHON_JULIACALL_PROJECT", "PYTHON_JULIAPKG_PROJECT"):
        if named := os.environ.get(variable):
            return Path(named)
    is_virtual = sys.prefix != sys.base_prefix
    if prefix := sys.prefix if is_virtual else os.environ.get("CONDA_PREFIX"):
        return Path(prefix) / "julia_env"
    depot = os.environ.get("JULIA_DEPOT_PATH", "").split(os.pathsep)[0]
    return Path(depot or Path.home() / ".julia") / "environments" / "pyjuliapkg"


def to_install(packages: Packages, device: str) -> str | None:
    """Return a line that says what `install` would install; None for nothing.

    Raises Unavailable if something is missing that juliapkg must not download.
    """
    if "PYTHON_JULIACALL_EXE" in os.environ:
        return None
    found = find()
    import juliapkg

    resolved = juliapkg.resolve(dry_run=True)
    if juliapkg.state.STATE["offline"]:
        exe = juliapkg.executable() if resolved else found and found[0]
        _require_packages(exe, [*PACKAGES, packages.own, *packages.of_device(device)])
        return None
    if resolved and _are_added(packages, device):
        return None
    what = packages.title if found else f"Julia and {packages.title}"
    return f"installing {what}, once: this takes minutes"


def install(packages: Packages, device: str) -> None:
    """Install what is missing; raise Unavailable, with the reason, if that fails."""
    import juliapkg

    add_packages(packages, device)
    socket.setdefaulttimeout(NETWORK_SECONDS)
    server_error = _package_server_error()
    if server_error:
        _set_offline(server_error)
    try:
        juliapkg.resolve()
    except Exception as error:
        raise Unavailable(_install_error(error, server_error)) from error


def start(packages: Packages, device: str) -> Any:
    """Start Julia and return the framework's own module; raise Unavailable if that fails."""
    try:
        import juliacall
    except Exception as error:
        raise Unavailable(f"juliacall cannot start Julia with its packages: {error}") from error
    main = juliacall.Main
    if device == "gpu":
        main.seval(f"import {', '.join(packages.on_gpu)}")
    main.seval(f"import {packages.own}")
    return getattr(main, packages.own)


def _specs(packages: Packages, device: str) -> dict[str, dict[str, Any]]:
    """Return a framework's packages as juliapkg describes them, by name."""
    own = {"uuid": packages.uuid, "dev": True, "path": str(JULIA_FOLDER / packages.own)}
    specs: dict[str, dict[str, Any]] = {packages.own: own}
    for name, package in packages.of_device(device).items():
        version = {"version": package.version} if package.version else {}
        specs[name] = {"uuid": package.uuid} | version
    return specs


def _are_added(packages: Packages, device: str) -> bool:
    """Return whether a framework's packages are among those that juliapkg installs."""
    from juliapkg.deps import load_cur_deps

    added = load_cur_deps().get("packages", {})
    return all(added.get(name) == spec for name, spec in _specs(packages, device).items())


def add_packages(packages: Packages, device: str) -> None:
    """Add a framework's packages to those that juliapkg installs, which are kept for later runs.

    Packages of a crossbench that is not there any more are removed: Julia would not find them.
    """
    import juliapkg
    from juliapkg.deps import load_cur_deps

    for name, spec in load_cur_deps().get("packages", {}).items():
        if spec.get("dev") and not Path(spec["path"]).is_dir():
            juliapkg.rm(name)
    for name, spec in _specs(packages, device).items():
        juliapkg.add(name, **spec)


def _require_packages(exe: str | None, needed: Iterable[str]) -> None:
    """Raise Unavailable unless Julia has all packages: juliapkg, which is offline, adds none.

    exe: Julia's path; None where there is no Julia.
    """
    import juliapkg

    if exe is None:
        raise Unavailable(_NO_JULIA.format(f"{OFFLINE}=yes"))
    project = juliapkg.state.STATE["project"]
    run = _run(exe, "--startup-file=no", f"--project={project}", "-e", FIND_PACKAGES, *needed)
    if run.returncode:
        error = (run.stderr.strip().splitlines() or [f"it exits with {run.returncode}"])[0]
        raise Unavailable(f"{exe} cannot say which packages {project} has: {error}")
    if absent := run.stdout.split():
        verb = "is" if len(absent) == 1 else "are"
        raise Unavailable(
            f"{', '.join(absent)} {verb} not installed in the Julia project {project}, and "
            f"juliapkg must not download anything ({OFFLINE}=yes): unset that variable where there "
            "is a network, or name a project that has the packages with PYTHON_JULIAPKG_PROJECT"
        )


def _package_server_error() -> str | None:
    """Return which package server does not answer and why; None if it answers."""
    server = os.environ.get("JULIA_PKG_SERVER", PACKAGE_SERVER)
    if not server:  # switched off: Pkg clones from the addresses in the registry
        return None
    address = server if "://" in server else f"https://{server}"
    try:
        urllib.request.urlopen(f"{address.rstrip('/')}/registries").close()
    except urllib.error.HTTPError:  # it answers, even if it asks for credentials
        return None
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)  # a URLError wraps the cause
        return f"the package server {server} does not answer ({why})"
    return None


def _set_offline(server_error: str) -> None:
    """Have Pkg use the packages in Julia's depot: it would wait for the server forever.

    Raises Unavailable if there is no Julia, or no registry in the depot, which Pkg would download.
    """
    found = find()
    if found is None:
        raise Unavailable(_NO_JULIA.format(server_error))
    os.environ["JULIA_PKG_SERVER"] = ""
    os.environ.setdefault("JULIA_PKG_OFFLINE", "true")
    program = "import Pkg; exit(isempty(Pkg.Registry.reachable_registries()))"
    if _run(found[0], "--startup-file=no", "-e", program).returncode:
        raise Unavailable(_NO_PACKAGES.format(*found, server_error))
    print(f"{server_error}: Pkg uses the packages in Julia's depot", file=sys.stderr)


def _install_error(error: Exception, server_error: str | None) -> str:
    """Return one line that says why Julia or its packages cannot be installed."""
    found = find()
    if found is None:
        return _NO_JULIA.format(error)
    if isinstance(error, subprocess.CalledProcessError):
        return _NO_PACKAGES.format(*found, server_error or "Pkg's error is above")
    exe, version = found
    return f"Julia {version} ({exe}) cannot be used, and no other can be downloaded: {error}"


def _run(exe: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Julia to its end; raise Unavailable if it does not start, or not finish in time."""
    try:
        return subprocess.run(
            [exe, *arguments], capture_output=True, text=True, timeout=ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"{exe} {arguments[0]} did not finish within {ANSWER_SECONDS:.0f} s"
        ) from None
    except OSError as error:
        raise Unavailable(f"{exe} does not start: {error.strerror}") from None


def _numbers(version: str) -> list[int]:
    """Return the numbers that a version begins with: [1, 10, 8] for 1.10.8."""
    return [int(number) for number in re.findall(r"\d+", version)[:3]]
