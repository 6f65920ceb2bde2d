"""Says which frameworks have programs."""

from __future__ import annotations

from .. import adapters
from ..inputs.errors import SpecError
from ..inputs.names import IDIOMATIC
from ..plan import unavailable_reason

OF_MODEL, OF_PART = "training_program", "part_program"
"""The functions of an adapter's programs that write one of the whole model, and of a part."""


def installed(kind: str) -> list[str]:
    """Return the installed frameworks that have programs of a kind; SpecError if there is none."""
    having = [name for name in adapters.loadable() if without_programs(name, kind) is None]
    found = [name for name in having if unavailable_reason(name, IDIOMATIC, "cpu") is None]
    if not found:
        raise SpecError(
            f"no framework that has programs is installed: install one of {', '.join(having)}"
        )
    return found


def without_programs(framework: str, kind: str) -> str | None:
    """Return why a framework has no programs of a kind, in a line; None where it has."""
    try:
        adapter = adapters.get(framework)
    except SpecError as error:  # of another machine's results
        return str(error)
    if hasattr(adapter.programs, kind):
        return None
    what = "programs" if kind == OF_MODEL else "programs of a layer"
    return f"the adapter of {adapter.title} writes no {what}"
