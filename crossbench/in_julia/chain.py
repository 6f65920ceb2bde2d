"""Write the statements in Julia that make a model: a Chain of layers, with a function for those
that repeat. Needs no Julia.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
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
    """Writes a Chain of layers. functions: those that make equal blocks. activations: those that
    layers apply themselves, by the layer's name.
    """

    functions: list[str] = field(default_factory=list, init=False)
    activations: dict[str, str] = field(default_factory=dict, init=False)

    no_layers: ClassVar[str]
    """What stands for a branch without layers."""

    @abstractmethod
    def statements(self, layers: Sequence[NamedLayer]) -> list[str]:
        """Return the statements that make the `model`."""

    @abstractmethod
    def layer(self, named: NamedLayer, *activation: str) -> list[str | Call]:
        """Return the items of a layer. activation: the one that it applies itself, if any."""

    def items(self, layers: Sequence[NamedLayer]) -> list[str | Call]:
        """Return the arguments of a Chain."""
        items: list[str | Call] = []
        parts, activations = chain_parts(layers)
        self.activations |= activations
        for part in parts:
            if isinstance(part, Block):
                items.append(self.repeated(f"[{self._block(part)}() for _ = 1:{part.count}]"))
            else:
                items += self._items_of(part)
        return items

    def chain(self, layers: Sequence[NamedLayer]) -> Call:
        return Call("Chain", tuple(self.items(layers)))

    def repeated(self, blocks: str) -> str:
        """Return the argument of a Chain that stands for equal blocks. blocks: a list of them."""
        return f"{blocks}..."

    def _items_of(self, named: NamedLayer) -> list[str | Call]:
        if not isinstance(named.layer, models.Residual):
            activation = self.activations.get(named.name)
            return self.layer(named, *([activation] if activation else []))
        body, shortcut = (
            self.chain(branch) if branch else self.no_layers
            for branch in (named.body, named.shortcut)
        )
        if named.shortcut:
            return [Call("Parallel", ("+", body, shortcut))]
        return [Call("SkipConnection", (body, "+"))]

    def _block(self, block: Block) -> str:
        """Write the function that makes a block, and return its name."""
        items = [item for named in block.layers for item in self._items_of(named)]
        made = items[0] if len(items) == 1 else Call("Chain", tuple(items))
        name = f"block{len(self.functions) + 1}" if self.functions else "block"
        lines = indented([written("return ", made, room=LINE - 4)])
        self.functions.append("\n".join([f"function {name}()", *lines, "end"]))
        return name


def chain_parts(layers: Sequence[NamedLayer]) -> tuple[list[NamedLayer | Block], dict[str, str]]:
    """Return the layers of a Chain, and the activations among them that the layer before applies
    itself, by its name.
    """
    kept: list[NamedLayer] = []
    applied: dict[str, str] = {}
    for named in layers:
        activation = activation_source(named.layer)
        applies = kept and isinstance(kept[-1].layer, WITH_ACTIVATION)
        if activation and applies and kept[-1].name not in applied:
            applied[kept[-1].name] = activation
        else:
            kept.append(named)
    return list(grouped(kept, applied)), applied
