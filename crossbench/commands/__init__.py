"""Implement the command line: one module for each command, imported when it is named."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

NAMES = {
    "doctor": "(what is installed, which devices, where the data is; --check proves small models)",
    "models": "(their sizes and sources)",
    "show": "FILE (the table of a results file)",
    "report": "FILE (a page with charts)",
    "compare": "FILE FILE (what changed)",
    "merge": "FILE FILE (several machines in one table)",
    "script": "FILE (programs of the slow layers, each in its framework alone)",
    "sweep": "FILE (many runs, on one machine or many)",
    "status": "DIR (what became of them)",
    "site": "DIR (the pages of their results)",
    "check": "FILE (whether results may be published)",
}
"""The commands that are named, with what each takes and does; what has no such name is a run."""


def find(name: str) -> Callable[[list[str]], int]:
    """Return what runs a command: it takes the words after the name, and returns the exit status.

    name: one of NAMES, or "run".
    """
    main: Callable[[list[str]], int] = import_module(f"{__name__}.{name}").main
    return main
