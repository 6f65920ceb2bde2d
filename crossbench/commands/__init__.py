"""Implement the command line: one module for each command, imported when it is named."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

NAMES = (
    "doctor",
    "models",
    "show",
    "report",
    "compare",
    "merge",
    "sweep",
    "status",
    "script",
    "site",
    "check",
)
"""The commands that are named; what has no such name is a run."""


def find(name: str) -> Callable[[list[str]], int]:
    """Return what runs a command: it takes the words after the name, and returns the exit status.

    name: one of NAMES, or "run".
    """
    main: Callable[[list[str]], int] = import_module(f"{__name__}.{name}").main
    return main
