"""Says how a layer is written."""

from __future__ import annotations

from dataclasses import dataclass

from .statements import Call


@dataclass(frozen=True)
class LayerSource:
    """Says how a framework's users write a layer.

    build: makes it; None where it needs no object. output: the expression of its output, in which
    {layer} is its name and {x} its input. definitions: the classes and functions that are named.
    before: layers without parameters that its input goes through.
    """

    build: Call | None
    output: str = "{layer}({x})"
    definitions: tuple[str, ...] = ()
    before: tuple[Call, ...] = ()

    @property
    def call(self) -> Call:
        """Return what makes the object of a layer that needs one."""
        assert self.build is not None
        return self.build
