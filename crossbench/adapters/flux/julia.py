"""Find, install and start Julia.

juliapkg finds or downloads Julia, and installs the packages of crossbench/juliapkg.json into
the virtual environment (under julia_env). Importing juliacall starts Julia, in the worker process.
Setting both PYTHON_JULIACALL_EXE and PYTHON_JULIACALL_PROJECT bypasses juliapkg.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from typing import Any

from ...workload import Unavailable

DOWNLOAD = "https://julialang.org/downloads"
PACKAGES = ("PythonCall", "CrossBenchFlux")
"""Julia's packages that the worker imports."""
CUDA_PACKAGES = {
    "CUDA": "052768ef-5323-5732-b1bb-66c8b64840ba",
    "cuDNN": "02a925ec-e4fe-4b08-9a7e-0d78e3d38ccd",
}
PACKAGE_SERVER = "https://pkg.julialang.org"
"""Pkg's default package server."""
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


def to_install(device: str) -> str | None:
    """Return a line that says what `install` would install, and where; None for nothing.

    Raises Unavailable if something is missing that juliapkg must not download.
    """
    if "PYTHON_JULIACALL_EXE" in os.environ:
        return None
    found = find()
    import juliapkg

    _require_cuda_packages(device)
    resolved = juliapkg.resolve(dry_run=True)
    if juliapkg.state.STATE["offline"]:
        _require_packages(juliapkg.executable() if resolved else found and found[0], device)
        return None
    if resolved:
        return None
    what = "Flux.jl and its packages" if found else "Julia, Flux.jl and its packages"
    return f"installing {what} into {juliapkg.state.STATE['project']}, once: this takes minutes"


def install(device: str) -> None:
    """Install what is missing; raise Unavailable, with the reason, if that fails."""
    import juliapkg

    _require_cuda_packages(device)
    socket.setdefaulttimeout(NETWORK_SECONDS)
    server_error = _package_server_error()
    if server_error:
        _set_offline(server_error)
    try:
        juliapkg.resolve()
    except Exception as error:
        raise Unavailable(_install_error(error, server_error)) from error


def start(device: str) -> Any:
    """Start Julia and return its module CrossBenchFlux; raise Unavailable if that fails."""
    try:
        import juliacall
    except Exception as error:
        raise Unavailable(f"juliacall cannot start Julia with its packages: {error}") from error
    main = juliacall.Main
    if device == "gpu":
        main.seval("import CUDA, cuDNN")
    main.seval("import CrossBenchFlux")
    return main.CrossBenchFlux


def _require_cuda_packages(device: str) -> None:
    """Add CUDA.jl, which is large, to what juliapkg installs, but only for a GPU."""
    if device == "gpu":
        import juliapkg

        for name, uuid in CUDA_PACKAGES.items():
            juliapkg.add(name, uuid)


def _require_packages(exe: str | None, device: str) -> None:
    """Raise Unavailable unless Julia has all packages: juliapkg, which is offline, adds none.

    exe: Julia's path; None where there is no Julia.
    """
    import juliapkg

    if exe is None:
        raise Unavailable(_NO_JULIA.format(f"{OFFLINE}=yes"))
    needed = [*PACKAGES, *(CUDA_PACKAGES if device == "gpu" else ())]
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
