"""Find the adapter of a framework: a folder here, an entry point of a package, or FILE.py:NAME.

An entry point in `crossbench.adapters` refers to an Adapter (crossbench.workload); its name is the
framework's name.

In a folder source.py says how each layer is written, program.py writes the program of a row,
workload.py trains, and each variant but `malloc` is a file. A row runs what program.py writes, but
for the loop. In PyTorch, JAX and Keras network.py writes the model, and says where it holds each
parameter. What a framework lacks is in layers.py, of Flux and Lux in src/layers.jl under julia/.
"""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from ..inputs import python_file
from ..inputs.checks import shown
from ..inputs.errors import SpecError
from ..inputs.names import IDIOMATIC
from ..models import Model
from ..workload import Adapter, Variant

GROUP = "crossbench.adapters"
REFERENCE = "reference"
"""Name of the NumPy adapter that all others are compared with; timed only when asked for."""


def names() -> list[str]:
    """Return the name of every adapter, the built-in ones first."""
    built_in = [module.name for module in pkgutil.iter_modules(__path__)]
    return built_in + sorted({entry.name for entry in _entries()} - set(built_in))


def _entries() -> Collection[metadata.EntryPoint]:
    return _entries_on(tuple(sys.path))


@cache
def _entries_on(path: tuple[str, ...]) -> Collection[metadata.EntryPoint]:
    """Return the entry points of the packages on a path; finding them reads all their metadata."""
    return tuple(metadata.entry_points(group=GROUP))


def get(name: str, variant: str = IDIOMATIC) -> Adapter:
    """Return the adapter of a framework's variant.

    Raises SpecError if there is no such framework or its adapter does not load.
    """
    found = _of_framework(name)
    return found if variant == IDIOMATIC else found.of_variant(variant)


def _of_framework(name: str) -> Adapter:
    if ":" in name:
        return _from_file(name)
    if name in (module.name for module in pkgutil.iter_modules(__path__)):
        adapter: Adapter = import_module(f"{__name__}.{name}").ADAPTER
        return adapter
    for entry in _entries():
        if entry.name != name:
            continue
        try:
            return entry.load()
        except (Exception, SystemExit) as error:
            raise SpecError(
                f"the framework {name!r} ({entry.value}) does not load: {error}"
            ) from error
    hint = f"; an adapter in a file is named as {name}:ADAPTER" if name.endswith(".py") else ""
    raise SpecError(f"there is no framework {shown(name)}: choose from {', '.join(names())}{hint}")


@cache
def _from_file(name: str) -> Adapter:
    """Return the adapter that FILE.py:NAME names; its title ends in the file's name."""
    adapter: Adapter = python_file.load(name, Adapter, "adapter")
    title = getattr(adapter, "title", None)
    if not isinstance(title, str) or not title:
        raise SpecError(f"the adapter {name} has no title: set it to the framework's name")
    adapter.title = f"{title} ({Path(name.rpartition(':')[0]).name})"
    return adapter


def split(name: str) -> tuple[str, str | None]:
    """Return the framework and the variant that a name such as "torch:tuned" means.

    The variant is None where the name has none. Raises SpecError where there is no such framework,
    or it has no such variant.
    """
    path, extension, rest = name.rpartition(".py:")
    own_name, colon, variant = rest.partition(":")
    framework = path + extension + own_name
    known = variants(framework)
    if colon and variant not in known:
        raise SpecError(
            f"{framework} has no variant {shown(variant)}: choose from {', '.join(known)}"
        )
    return framework, variant if colon else None


def expand(names: Iterable[str], wanted: Collection[str]) -> list[tuple[str, str]]:
    """Return the framework and the variant of each name, without repetitions.

    A name without a variant gets those of `wanted` that its framework has.
    """
    found = []
    for name in names:
        framework, variant = split(name)
        chosen = [variant] if variant else [v for v in variants(framework) if v in wanted]
        found += [(framework, one) for one in chosen]
    return list(dict.fromkeys(found))


def describe(found: Any, input_shape: tuple[int, ...] | None, name: str) -> Model | None:
    """Return the description of a model in a framework's own words; None if it is in none's.

    input_shape: of one example; name: of the model, for messages. Raises SpecError for a model that
    has no description, and where the shape is missing.
    """
    for framework in loadable():
        adapter = get(framework)
        if adapter.describes(found):
            if input_shape is None:
                raise SpecError(
                    f"{name} is a model of {adapter.title}: give the shape of one example as input"
                )
            return adapter.describe(found, input_shape)
    return None


def loadable() -> list[str]:
    """Return the names of the adapters that load: a third party's may not."""
    found = []
    for name in names():
        with suppress(SpecError):
            get(name)
            found.append(name)
    return found


def variants(framework: str) -> Mapping[str, Variant]:
    """Return the variants of a framework by name; raise SpecError where its adapter's are wrong."""
    found: Any = getattr(get(framework), "variants", Adapter.variants)
    names_are_words = isinstance(found, Mapping) and all(
        isinstance(name, str) and re.fullmatch(r"\w+", name) and isinstance(value, Variant)
        for name, value in found.items()
    )
    if not names_are_words or IDIOMATIC not in found:
        raise SpecError(
            f"the variants of the framework {shown(framework)} must be a dict of Variants by name, "
            f"with one that is named {IDIOMATIC}"
        )
    return found
