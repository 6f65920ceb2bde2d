"""Find the adapter of a framework: a module here, or an entry point in `crossbench.adapters`.

An entry point refers to an Adapter (crossbench.workload); its name is the framework's name.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module, metadata

from ..errors import SpecError
from ..workload import Adapter

GROUP = "crossbench.adapters"
REFERENCE = "reference"
"""Name of the NumPy adapter that all others are compared with; timed only when asked for."""


def names() -> list[str]:
    """Return the name of every adapter, the built-in ones first."""
    built_in = [module.name for module in pkgutil.iter_modules(__path__)]
    return built_in + sorted({e.name for e in metadata.entry_points(group=GROUP)} - set(built_in))


def get(name: str) -> Adapter:
    """Return the adapter of that name; raise SpecError if there is none or it does not load."""
    if name in (module.name for module in pkgutil.iter_modules(__path__)):
        adapter: Adapter = import_module(f"{__name__}.{name}").ADAPTER
        return adapter
    for entry in metadata.entry_points(group=GROUP, name=name):
        try:
            return entry.load()
        except (Exception, SystemExit) as error:
            raise SpecError(
                f"the framework {name!r} ({entry.value}) does not load: {error}"
            ) from error
    raise SpecError(f"there is no framework {name!r}: choose from {', '.join(names())}")
