"""Says which frameworks have programs."""

from __future__ import annotations

from .. import adapters
from ..inputs.errors import SpecError
from ..inputs.names import IDIOMATIC
from ..plan import unavailable_reason
from ..workload import Adapter


def installed() -> list[str]:
    """Return the installed frameworks that have programs; SpecError if there is none."""
    having = [name for name in adapters.loadable() if without_programs(name) is None]
    found = [name for name in having if unavailable_reason(name, IDIOMATIC, "cpu") is None]
    if not found:
        raise SpecError(
            f"no framework that has programs is installed: install one of {', '.join(having)}"
        )
    return found


def without_programs(framework: str) -> str | None:
    """Return why a framework has no programs, in a line; None where it has."""
    try:
        adapter = adapters.get(framework)
    except SpecError as error:  # of another machine's results
        return str(error)
    own = getattr(type(adapter), "part_program", Adapter.part_program)
    if own is not Adapter.part_program:
        return None
    return f"the adapter of {adapter.title} writes no programs"
