"""Write the statements in Julia that make a model: a Chain of layers, with a function for those
that repeat. Needs no Julia.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from .. import models
from ..models.model import NamedLayer
from ..source.statements import Call, indented
from ..source.training_programs import Block, grouped
from .source import LINE, activation_source, written

WITH_ACTIVATION = (models.Conv, models.Dense, models.BatchNorm)
"""Layers that apply an activation themselves."""


@dataclass
class Chain(ABC):
    """Writes a Chain of layers. functions: those that make equal blocks."""

    functions: list[str] = field(default_factory=list, init=False)

    no_layers: ClassVar[str]
    """What stands for a branch without layers."""

    @abstractmethod
    def statements(self, layers: Sequence[NamedLayer]) -> list[str]:
        """Return the statements that make the `model`."""

    @abstractmethod
    def layer(self, named: NamedLayer, applied: Sequence[str]) -> list[str | Call]:
        """Return the items of a layer. applied: the activation that it applies itself, if any."""

    def items(self, layers: Sequence[NamedLayer]) -> list[str | Call]:
        """Return the arguments of a Chain."""
        items: list[str | Call] = []
        for part in chain_parts(layers):
            if isinstance(part.made, Block):
                items.append(self.repeated(f"[{self._block(part)}() for _ = 1:{part.made.count}]"))
            else:
                items += self._items_of(part.made, part.activations)
        return items

    def chain(self, layers: Sequence[NamedLayer]) -> Call:
        return Call("Chain", tuple(self.items(layers)))

    def repeated(self, blocks: str) -> str:
        """Return the argument of a Chain that stands for equal blocks. blocks: a list of them."""
        return f"{blocks}..."

    def _items_of(self, named: NamedLayer, activations: Mapping[str, str]) -> list[str | Call]:
        if isinstance(named.layer, models.Residual):
            return [self._residual(named)]
        return self.layer(named, [activations[named.name]] if named.name in activations else [])

    def _residual(self, named: NamedLayer) -> Call:
        body, shortcut = (self._branch(branch) for branch in (named.body, named.shortcut))
        if named.shortcut:
            return Call("Parallel", ("+", body, shortcut))
        return Call("SkipConnection", (body, "+"))

    def _branch(self, layers: Sequence[NamedLayer]) -> str | Call:
        return self.chain(layers) if layers else self.no_layers

    def _block(self, part: ChainPart) -> str:
        """Write the function that makes a block, and return its name."""
        assert isinstance(part.made, Block)
        items = [i for named in part.made.layers for i in self._items_of(named, part.activations)]
        made = items[0] if len(items) == 1 else Call("Chain", tuple(items))
        name = f"block{len(self.functions) + 1}" if self.functions else "block"
        lines = indented([written("return ", made, room=LINE - 4)])
        self.functions.append("\n".join([f"function {name}()", *lines, "end"]))
        return name


@dataclass(frozen=True)
class ChainPart:
    """Holds a layer of a Chain, or a block of equal layers.

    activations: those that layers of the Chain apply themselves, by the layer's name.
    """

    made: NamedLayer | Block
    activations: Mapping[str, str]


def chain_parts(layers: Sequence[NamedLayer]) -> Iterator[ChainPart]:
    """Yield the layers of a Chain, without the activations that others apply themselves."""
    activations = {named.name: name for named, *applied in fused(layers) for name in applied}
    kept = [named for named, *_ in fused(layers)]
    for made in grouped(kept, activations):
        yield ChainPart(made, activations)


def fused(layers: Sequence[NamedLayer]) -> Iterator[tuple[NamedLayer, *tuple[str, ...]]]:
    """Yield each layer with the activation that follows it, if it applies one itself."""
    rest = list(layers)
    while rest:
        named = rest.pop(0)
        activation = activation_source(rest[0].layer) if rest else None
        if activation and isinstance(named.layer, WITH_ACTIVATION):
            rest.pop(0)
            yield named, activation
        else:
            yield (named,)
