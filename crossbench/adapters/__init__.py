"""The frameworks: each module here, and each entry point of the group `crossbench.adapters`.

An entry point names an Adapter (crossbench.workload) and is called by the entry point's name.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module, metadata

from ..errors import SpecError
from ..workload import Adapter

GROUP = "crossbench.adapters"
REFERENCE = "reference"
"""The NumPy adapter that parity is proved against; it is timed only when it is named."""


def names() -> list[str]:
    """Every adapter that can be named, the built-in ones first."""
    built_in = [module.name for module in pkgutil.iter_modules(__path__)]
    return built_in + sorted({e.name for e in metadata.entry_points(group=GROUP)} - set(built_in))


def get(name: str) -> Adapter:
    """The adapter of that name; SpecError where there is none or it cannot be loaded."""
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
