"""The catalogue: every module of this package with a MODEL is a model, named as its file. A user's
own is in a Python file.
"""

from __future__ import annotations

import pkgutil
import runpy
import traceback
from importlib import import_module
from pathlib import Path

from ..checks import shown, shown_error
from ..errors import SpecError
from .model import Model, NamedLayer, Weights

__all__ = ["Model", "NamedLayer", "Weights", "get", "names"]


def names() -> list[str]:
    """The names of the catalogue."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in modules if hasattr(import_module(f"{__name__}.{name}"), "MODEL")]


def get(name: str) -> Model:
    """The model of that name, of the catalogue or FILE.py:NAME; SpecError where there is none."""
    file, colon, member = name.rpartition(":")
    if colon:
        return _of_file(Path(file), member)
    if name not in names():
        hint = f"; a model in a file is named as {name}:NAME" if name.endswith(".py") else ""
        raise SpecError(f"there is no model {shown(name)}: choose from {', '.join(names())}{hint}")
    model: Model = import_module(f"{__name__}.{name}").MODEL
    return model


def _of_file(file: Path, member: str) -> Model:
    if not _is_file(file):
        raise SpecError(f"the model's file {shown(str(file))} is not there: write FILE.py:NAME")
    try:
        found = runpy.run_path(str(file))
    except KeyboardInterrupt:  # the user's, or as good as that: the run ends in a line
        raise
    except BaseException as error:  # SystemExit too: exit() in the file must not pass for success
        raise SpecError(f"{file} does not load: {shown_error(error)}{_line(file, error)}") from None
    if member not in found:
        own = ", ".join(name for name, value in found.items() if isinstance(value, Model))
        raise SpecError(f"{file} has no {member}: its models are {own or 'none'}")
    model = found[member]
    if not isinstance(model, Model):
        raise SpecError(f"{member} in {file} is a {type(model).__name__}, not a crossbench Model")
    return model


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long, or a directory above it is closed
        return False


def _line(file: Path, error: BaseException) -> str:
    """Return the file's line in which the error was raised, in words; "" where it was in none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f" (line {lines[-1]})" if lines else ""
