"""Find models by name: in the catalogue, or in a user's Python file.

The catalogue is every module of this package with a MODEL, which is named as its file.
"""

from __future__ import annotations

import pkgutil
import runpy
import traceback
from importlib import import_module
from pathlib import Path

from ..checks import short_error, shown
from ..errors import SpecError
from .model import Model, NamedLayer, Weights

__all__ = ["Model", "NamedLayer", "Weights", "get", "names"]


def names() -> list[str]:
    """Return the names of the models in the catalogue."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in modules if hasattr(import_module(f"{__name__}.{name}"), "MODEL")]


def get(name: str) -> Model:
    """Return the catalogue's model of that name, or FILE.py:NAME's; raise SpecError if none."""
    file, colon, member = name.rpartition(":")
    if colon:
        return _load_from_file(Path(file), member)
    if name not in names():
        hint = f"; a model in a file is named as {name}:NAME" if name.endswith(".py") else ""
        raise SpecError(f"there is no model {shown(name)}: choose from {', '.join(names())}{hint}")
    model: Model = import_module(f"{__name__}.{name}").MODEL
    return model


def _load_from_file(file: Path, member: str) -> Model:
    if not _is_file(file):
        raise SpecError(f"the model's file {shown(str(file))} does not exist: write FILE.py:NAME")
    try:
        variables = runpy.run_path(str(file))
    except KeyboardInterrupt:  # Ctrl-C must stop the run, whoever raised it
        raise
    except BaseException as error:  # SystemExit too: exit() in the file must not pass for success
        raise SpecError(f"{file} does not load: {short_error(error)}{_line(file, error)}") from None
    if member not in variables:
        own = ", ".join(name for name, value in variables.items() if isinstance(value, Model))
        raise SpecError(f"{file} has no {member}: its models are {own or 'none'}")
    model = variables[member]
    if not isinstance(model, Model):
        raise SpecError(f"{member} in {file} is a {type(model).__name__}, not a crossbench Model")
    return model


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # for a name that is too long, or in a folder that is not readable
        return False


def _line(file: Path, error: BaseException) -> str:
    """Return " (line N)" for the file's line that raised the error; "" if no line of it did."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f" (line {lines[-1]})" if lines else ""
