"""Write the statements in Julia that make a model: a Chain, with a function for layers that repeat.

Needs no Julia.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from .. import models
from ..models.layers.branches import ADD, CONCATENATE
from ..models.model import NamedLayer
from ..source.layers import fused
from ..source.statements import Call, indented
from ..source.training_programs import Block, grouped
from .source import ACTIVATIONS, LINE, written

WITH_ACTIVATION = (models.Convolution, models.Dense, models.BatchNorm, models.GroupNorm)
"""Layers that apply an activation themselves."""


@dataclass
class Chain(ABC):
    """Writes a Chain of layers. functions: those that make equal blocks. activations: those that
    layers apply themselves, by the layer's name. paths: the fields that lead to a layer's states in
    those of the model, by its name, where the framework keeps them apart from the layers.
    """

    functions: list[str] = field(default_factory=list, init=False)
    activations: dict[str, str] = field(default_factory=dict, init=False)
    paths: dict[str, str] = field(default_factory=dict, init=False)

    no_layers: ClassVar[str]
    """What stands for a branch without layers."""

    @abstractmethod
    def statements(self, layers: Sequence[NamedLayer]) -> list[str]:
        """Return the statements that make the `model`."""

    @abstractmethod
    def layer(self, named: NamedLayer, *activation: str) -> list[str | Call]:
        """Return the items of a layer. activation: the one that it applies itself, if any."""

    def items(self, layers: Sequence[NamedLayer], path: str = "") -> list[str | Call]:
        """Return the arguments of a Chain. path: that of its layers, up to their own fields."""
        items: list[str | Call] = []
        parts, activations = chain_parts(layers)
        self.activations |= activations
        for index, part in enumerate(parts):
            own_path = path + self.field_of(index, len(parts))
            if isinstance(part, Block):
                block = self._block(part, own_path)
                items.append(self.repeated(f"[{block}() for _ = 1:{part.count}]"))
            else:
                items += self.items_of(part, own_path)
        return items

    def chain(self, layers: Sequence[NamedLayer], path: str = "") -> Call:
        return Call("Chain", tuple(self.items(layers, path)))

    def field_of(self, index: int, count: int) -> str:
        """Return the field with the states of a layer in a Chain of so many."""
        return f"layer_{index + 1}"

    def repeated(self, blocks: str) -> str:
        """Return the argument of a Chain that stands for equal blocks. blocks: a list of them."""
        return f"{blocks}..."

    def items_of(self, named: NamedLayer, path: str) -> list[str | Call]:
        """Return the items of a layer, or of branches."""
        if not isinstance(named.layer, models.Branches):
            self.paths[named.name] = path
            activation = self.activations.get(named.name)
            return self.layer(named, *([activation] if activation else []))
        join = _join_source(named, named.layer)
        *first, last = named.branches
        if len(first) == 1 and not last:
            return [Call("SkipConnection", (self._branch(first[0], f"{path}."), join))]
        numbered = enumerate(named.branches, start=1)
        made = (self._branch(layers, f"{path}.layer_{number}.") for number, layers in numbered)
        return [Call("Parallel", (join, *made))]

    def _branch(self, layers: Sequence[NamedLayer], path: str) -> str | Call:
        return self.chain(layers, path) if layers else self.no_layers

    def _block(self, block: Block, path: str) -> str:
        """Write the function that makes a block, and return its name."""
        items = self._items_of_block(block.layers, f"{path}.layer_1")
        written_so_far = len(self.functions)
        for number, layers in enumerate(block.repeated, start=2):  # for their paths
            self._items_of_block(layers, f"{path}.layer_{number}")
        del self.functions[written_so_far:]
        made = items[0] if len(items) == 1 else Call("Chain", tuple(items))
        name = f"block{len(self.functions) + 1}" if self.functions else "block"
        lines = indented([written("return ", made, room=LINE - 4)])
        self.functions.append("\n".join([f"function {name}()", *lines, "end"]))
        return name

    def _items_of_block(self, layers: Sequence[NamedLayer], path: str) -> list[str | Call]:
        if len(layers) == 1:
            return self.items_of(layers[0], path)
        numbered = enumerate(layers, start=1)
        return [i for n, named in numbered for i in self.items_of(named, f"{path}.layer_{n}")]


def _join_source(named: NamedLayer, layer: models.Branches) -> str:
    """Return the function of the outputs of branches that joins them."""
    if layer.join == CONCATENATE:
        return "cat_channels" if len(named.output_shape) == 3 else "vcat"
    ends = [branch[-1].output_shape if branch else named.input_shape for branch in named.branches]
    if layer.join == ADD and len(set(ends)) == 1:
        return "+"
    return layer.join


def chain_parts(layers: Sequence[NamedLayer]) -> tuple[list[NamedLayer | Block], dict[str, str]]:
    """Return the layers of a Chain, and the activations among them that the layer before applies
    itself, by its name.
    """
    kept, activations = fused(layers, WITH_ACTIVATION, ACTIVATIONS.get)
    return list(grouped(kept, activations)), activations
