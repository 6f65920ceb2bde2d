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
from typing import Any

from ...workload import Unavailable

DOWNLOAD = "https://julialang.org/downloads"
CUDA_PACKAGES = {
    "CUDA": "052768ef-5323-5732-b1bb-66c8b64840ba",
    "cuDNN": "02a925ec-e4fe-4b08-9a7e-0d78e3d38ccd",
}
NETWORK_SECONDS = 8.0  # for juliapkg's own downloads, which else wait for ever
VERSION_SECONDS = 20.0  # for `julia --version`


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
    try:
        run = subprocess.run(
            [exe, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{exe} --version did not end in {VERSION_SECONDS:.0f} s") from None
    except OSError as error:
        raise Unavailable(f"{exe} does not start: {error.strerror}") from None
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
    try:
        juliapkg.resolve()
    except Exception as error:
        raise Unavailable(_reason(error)) from error


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


def _reason(error: Exception) -> str:
    found = find()
    if found is None:
        return (
            f"Julia is not installed and cannot be downloaded ({error}): install it from {DOWNLOAD}"
        )
    exe, version = found
    if isinstance(error, subprocess.CalledProcessError):
        return f"the packages of Julia {version} ({exe}) cannot be installed: its error is above"
    return f"Julia {version} ({exe}) cannot be used, nor another one be downloaded: {error}"
