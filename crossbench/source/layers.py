"""Says how a layer is written, and writes the statements that apply layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..models import NamedLayer
from .statements import Call

MAX_NESTED = 70
"""Characters of a statement in which a layer's output may be the next one's argument."""


@dataclass(frozen=True)
class ParameterSource:
    """Says where a layer holds a parameter, and the value that a program gives it.

    path: the attribute of the layer, or of its gradient. index: of the parameter's rows, where the
    attribute has more than these.
    """

    path: str
    value: str
    index: str = ""


@dataclass(frozen=True)
class LayerSource:
    """Says how a framework's users write a layer.

    build: makes it; None where it needs no object. output: the expression of its output, in which
    {layer} is its name and {x} its input. parameters: the trained ones, by canonical name, without
    the layer's. definitions: the classes and functions that are named. changes: whether a pass
    changes the object. before: layers without parameters that its input goes through.
    """

    build: Call | None
    output: str = "{layer}({x})"
    parameters: Mapping[str, ParameterSource] = field(default_factory=dict)
    definitions: tuple[str, ...] = ()
    changes: bool = False
    before: tuple[Call, ...] = ()

    @property
    def call(self) -> Call:
        """Return what makes the object of a layer that needs one."""
        assert self.build is not None
        return self.build


@dataclass(frozen=True)
class LayerLines:
    """Holds the source code of one layer in a program."""

    named: NamedLayer
    source: LayerSource

    @property
    def name(self) -> str:
        """Return the name of the variable that holds the layer."""
        return self.named.name.replace("multiheadattention", "attention")

    def output(self, x: str) -> str:
        """Return the expression of the output."""
        for layer in self.source.before:
            x = f"{layer}({x})"
        return self.source.output.format(layer=self.name, x=x)


def output_lines(layers: Sequence[LayerLines], last: str) -> list[str]:
    """Return the statements that compute the output of layers from x. last: begins the last one."""
    *before, end = layers
    if len(before) == 1:
        nested = f"{last}{end.output(before[0].output('x'))}"
        if len(nested) <= MAX_NESTED:
            return [nested]
    lines, x = [], "x"
    for layer in before:
        lines.append(f"hidden = {layer.output(x)}")
        x = "hidden"
    return [*lines, f"{last}{end.output(x)}"]
