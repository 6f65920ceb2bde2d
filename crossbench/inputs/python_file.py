"""Load what a user names as FILE.py:NAME: a model, an adapter."""

from __future__ import annotations

import os
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from .checks import short_error, shown
from .errors import SpecError


def load(
    name: str, kind: type, word: str, convert: Callable[[Any], Any] = lambda found: found
) -> Any:
    """Return the object that FILE.py:NAME names.

    kind: its class. word: what it is called in messages, "model". convert: what makes one of
    another object, which it returns as it is if it does not know it. Raises SpecError, in a line,
    where the file does not load or holds no such object.
    """
    path, _, member = name.rpartition(":")
    file = Path(path)
    if not os.path.isfile(path):  # noqa: PTH113, Path.is_file raises for an impossible name
        raise SpecError(f"the {word}'s file {shown(path)} does not exist: write FILE.py:NAME")
    try:
        variables = runpy.run_path(path)
    except KeyboardInterrupt:  # Ctrl-C must stop the run, whoever raised it
        raise
    except BaseException as error:  # SystemExit too: exit() in the file must not pass for success
        message = short_error(_of_module(error))
        raise SpecError(f"{file} does not load: {message}{_line(file, error)}") from None
    if member not in variables:
        own = [name for name, value in variables.items() if isinstance(value, kind)]
        what = f"its {word}s are {', '.join(own)}" if own else f"it has {_public(variables)}"
        raise SpecError(f"{file} has no {member}: {what}")
    found = convert(variables[member])
    if not isinstance(found, kind):
        raise SpecError(
            f"{member} in {file} is a {type(found).__name__}, not a crossbench {kind.__name__}"
        )
    return found


def _public(variables: Mapping[str, Any]) -> str:
    """Return the names in a file that have no underscore and are not imported, or "nothing"."""
    found = (
        name
        for name, value in variables.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
        if getattr(value, "__name__", None) is None or value.__module__ == "<run_path>"
    )
    return ", ".join(found) or "nothing"


def _of_module(error: BaseException) -> BaseException:
    """Return what the module itself says of a name that cannot be imported from it, else the error:
    a module may know the nearest names.
    """
    match = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
    if isinstance(error, ImportError) and match:
        try:
            getattr(sys.modules[match[2]], match[1])
        except AttributeError as of_module:
            return of_module
    return error


def _line(file: Path, error: BaseException) -> str:
    """Return " (line N)" for the file's line that raised the error; "" if no line of it did."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f" (line {lines[-1]})" if lines else ""
