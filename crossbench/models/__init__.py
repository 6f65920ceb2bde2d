"""The catalogue: every module of this package with a MODEL is a model, named as its file."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ..errors import SpecError
from .model import Model, NamedLayer, Weights

__all__ = ["Model", "NamedLayer", "Weights", "get", "names"]


def names() -> list[str]:
    """The names that `get` takes."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in modules if hasattr(import_module(f"{__name__}.{name}"), "MODEL")]


def get(name: str) -> Model:
    """The model of that name; SpecError where there is none."""
    if name not in names():
        raise SpecError(f"there is no model {name!r}: choose from {', '.join(names())}")
    model: Model = import_module(f"{__name__}.{name}").MODEL
    return model
