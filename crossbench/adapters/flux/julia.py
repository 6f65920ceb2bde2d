"""The one place where Julia is started: its environment, its packages, its first line.

Julia starts when the worker process imports juliacall, which finds or installs Julia and the
packages of crossbench/juliapkg.json by juliapkg.
"""

from __future__ import annotations

from typing import Any

from ...workload import Unavailable


def environment(threads: int) -> dict[str, str]:
    """What juliacall must find in the environment before it is imported."""
    return {
        "PYTHON_JULIACALL_THREADS": str(threads),
        # with more than one thread Julia needs its own signal handlers, or it crashes
        "PYTHON_JULIACALL_HANDLE_SIGNALS": "yes",
        "PYTHON_JULIACALL_STARTUP_FILE": "no",
    }


def start(device: str) -> Any:
    """The Julia module CrossBenchFlux; Unavailable where Julia or a package cannot be had."""
    try:
        import juliacall
    except Exception as error:
        raise Unavailable(f"Julia does not start: {error}") from error
    main = juliacall.Main
    if device == "gpu":
        main.seval("import CUDA, cuDNN")
    main.seval("import CrossBenchFlux")
    return main.CrossBenchFlux
