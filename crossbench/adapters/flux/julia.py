"""The one place where Julia is found, installed and started.

juliapkg finds or downloads Julia, and installs the packages of crossbench/juliapkg.json into
the virtual environment (under julia_env). Importing juliacall starts Julia, in the worker process.
PYTHON_JULIACALL_EXE and PYTHON_JULIACALL_PROJECT together go past juliapkg.
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
CUDA_PACKAGES = {
    "CUDA": "052768ef-5323-5732-b1bb-66c8b64840ba",
    "cuDNN": "02a925ec-e4fe-4b08-9a7e-0d78e3d38ccd",
}
PACKAGE_SERVER = "https://pkg.julialang.org"  # Pkg's default
NETWORK_SECONDS = 8.0  # for an answer: juliapkg and Pkg would wait for ever, or minutes
ANSWER_SECONDS = 20.0  # for `julia --version` and the like
_NO_JULIA = f"Julia is not installed and cannot be downloaded ({{}}): install it from {DOWNLOAD}"
_NO_PACKAGES = "the packages of Julia {1} ({0}) cannot be installed: {2}"


def environment(threads: int) -> dict[str, str]:
    """What juliacall must find in the environment before it is imported."""
    return {
        "PYTHON_JULIACALL_THREADS": str(threads),
        # with more than one thread Julia needs its own signal handlers, or it crashes
        "PYTHON_JULIACALL_HANDLE_SIGNALS": "yes",
        "PYTHON_JULIACALL_STARTUP_FILE": "no",
    }


def find() -> tuple[str, str] | None:
    """The Julia that is there already, and its version; Unavailable where it does not work."""
    named = os.environ.get("PYTHON_JULIACALL_EXE") or os.environ.get("PYTHON_JULIAPKG_EXE")
    exe = shutil.which(named or "julia")
    if exe is None:
        if named:
            raise Unavailable(f"{named} is not an executable: it was named as Julia's")
        return None
    run = _run(exe, "--version")
    words = run.stdout.split()
    if run.returncode or words[:2] != ["julia", "version"]:
        raise Unavailable(f"{exe} is not a working Julia: --version exits with {run.returncode}")
    return exe, words[2]


def to_install(device: str) -> str | None:
    """A line about what is still missing, or None."""
    if "PYTHON_JULIACALL_EXE" in os.environ:
        return None
    found = find()
    import juliapkg

    _ask_for_cuda(device)
    if juliapkg.resolve(dry_run=True):
        return None
    what = "Flux.jl and its packages" if found else "Julia, Flux.jl and its packages"
    return f"installing {what} into {juliapkg.state.STATE['project']}, once: this takes minutes"


def install(device: str) -> None:
    """Install what is missing; Unavailable, with the reason, where it cannot be had."""
    import juliapkg

    _ask_for_cuda(device)
    socket.setdefaulttimeout(NETWORK_SECONDS)
    silent = _silent_package_server()
    if silent:
        _keep_offline(silent)
    try:
        juliapkg.resolve()
    except Exception as error:
        raise Unavailable(_reason(error, silent)) from error


def start(device: str) -> Any:
    """The Julia module CrossBenchFlux; Unavailable where Julia does not start."""
    try:
        import juliacall
    except Exception as error:
        raise Unavailable(f"Julia does not start: {error}") from error
    main = juliacall.Main
    if device == "gpu":
        main.seval("import CUDA, cuDNN")
    main.seval("import CrossBenchFlux")
    return main.CrossBenchFlux


def _ask_for_cuda(device: str) -> None:
    """CUDA.jl is large: it is asked for only where a GPU is."""
    if device == "gpu":
        import juliapkg

        for name, uuid in CUDA_PACKAGES.items():
            juliapkg.add(name, uuid)


def _silent_package_server() -> str | None:
    """Which package server does not answer and why, in a few words; None where it does."""
    server = os.environ.get("JULIA_PKG_SERVER", PACKAGE_SERVER)
    if not server:  # switched off: Pkg clones from wherever the registry says
        return None
    address = server if "://" in server else f"https://{server}"
    try:
        urllib.request.urlopen(f"{address.rstrip('/')}/registries").close()
    except urllib.error.HTTPError:  # an answer, if only that it wants to know who asks
        return None
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)  # a URLError wraps what happened
        return f"the package server {server} does not answer ({why})"
    return None


def _keep_offline(silent: str) -> None:
    """Have Pkg use what the depot holds, since it would wait for the silent server for ever.

    Unavailable where there is no Julia, or a depot without a registry, which Pkg would fetch first.
    """
    found = find()
    if found is None:
        raise Unavailable(_NO_JULIA.format(silent))
    os.environ["JULIA_PKG_SERVER"] = ""
    os.environ.setdefault("JULIA_PKG_OFFLINE", "true")
    program = "import Pkg; exit(isempty(Pkg.Registry.reachable_registries()))"
    if _run(found[0], "--startup-file=no", "-e", program).returncode:
        raise Unavailable(_NO_PACKAGES.format(*found, silent))
    print(f"{silent}: Pkg uses what Julia's depot holds", file=sys.stderr)


def _reason(error: Exception, silent: str | None) -> str:
    found = find()
    if found is None:
        return _NO_JULIA.format(error)
    if isinstance(error, subprocess.CalledProcessError):
        return _NO_PACKAGES.format(*found, silent or "its error is above")
    exe, version = found
    return f"Julia {version} ({exe}) cannot be used, nor another one be downloaded: {error}"


def _run(exe: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Unavailable where it does not start, or not end in time."""
    try:
        return subprocess.run([exe, *words], capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{exe} {words[0]} did not end in {ANSWER_SECONDS:.0f} s") from None
    except OSError as error:
        raise Unavailable(f"{exe} does not start: {error.strerror}") from None
