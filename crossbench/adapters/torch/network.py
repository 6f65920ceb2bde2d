"""Write a model as its layers in PyTorch, and say where it holds their parameters.

Imports no PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ... import models
from ...models.layers.branches import ADD
from ...models.model import NamedLayer
from ...source.statements import WIDTH, Call, call, indented
from ...source.training_programs import Block, grouped, shared_blocks
from .source import layer_source


@dataclass(frozen=True)
class Place:
    """Says where a model holds a canonical parameter: the path in its state_dict, and the rows."""

    path: str
    rows: slice


class Network:
    """Writes a model as an nn.Sequential of its layers.

    lines: the statements that make the `model`. functions: those that make equal blocks of it.
    paths: of each layer in the model, with the layer.
    """

    def __init__(self, layers: Sequence[NamedLayer]) -> None:
        self.blocks: dict[str, tuple[str, int]] = {}
        self.paths: list[tuple[str, NamedLayer]] = []
        made = Call("nn.Sequential", self._items(layers, "")).assigned_to("model")
        self.functions, self.lines = shared_blocks(self.blocks, [made])
        for path, named in self.paths:
            if isinstance(named.layer, models.Unembedding):
                is_last = named.name == layers[-1].name
                self.lines.append(f"model[{-1 if is_last else path}].weight = model[0].weight")

    def _items(self, layers: Sequence[NamedLayer], start: str) -> tuple[str | Call, ...]:
        """Return the arguments of an nn.Sequential, whose layers' paths begin so."""
        items: list[str | Call] = []
        place = 0
        for part in grouped(layers):
            if isinstance(part, Block):
                items.append(f"*({self._block(part, start, place)}() for _ in range({part.count}))")
                place += part.count - 1
            elif isinstance(part.layer, models.Branches):
                items.append(self._joined(part.layer.join, part.branches, f"{start}{place}"))
            else:
                self.paths.append((f"{start}{place}", part))
                items.append(layer_source(part))
            place += 1
        return tuple(items)

    def _joined(self, join: str, branches: tuple[tuple[NamedLayer, ...], ...], path: str) -> Call:
        is_residual = join == ADD and len(branches) == 2 and branches[0]
        names = ("body", "shortcut") if is_residual else map(str, range(len(branches)))
        chains = [
            Call("nn.Sequential", self._items(branch, f"{path}.{name}."))
            if branch
            else call("nn.Identity")
            for branch, name in zip(branches, names, strict=True)
        ]
        if is_residual:
            return Call("Residual", tuple(chains[: 1 + bool(branches[1])]))
        return Call(join.capitalize(), tuple(chains))

    def _block(self, block: Block, start: str, place: int) -> str:
        """Write the function that makes a block, and return its name."""
        name = f"block{len(self.blocks) + 1}" if self.blocks else "block"
        for number, layers in enumerate((block.layers, *block.repeated), start=place):
            items = self._items(layers, f"{start}{number}.")
        made = "\n".join(indented([Call("nn.Sequential", items).after("return ", WIDTH - 4)]))
        self.blocks[name] = f"def {name}():\n{made}", block.width
        return name

    def places(self) -> Iterator[tuple[str, Place]]:
        """Yield each parameter's full canonical name, with its place."""
        for path, named in self.paths:
            starts: dict[str, int] = {}
            for full_name, parameter in named.parameters.items():
                holder = attribute(named, full_name.partition(".")[2])
                start = starts.get(holder, 0)
                starts[holder] = start + parameter.shape[0]
                yield full_name, Place(f"{path}.{holder}", slice(start, starts[holder]))


def attribute(named: NamedLayer, name: str) -> str:
    """Return the attribute of a layer that holds a parameter; several may share one."""
    match named.layer:
        case models.Convolution(is_symmetric=False):
            return f"1.{name}"  # behind its padding
        case models.MultiHeadAttention() if "norm" not in name:
            projection, kind = name.split("_")
            return f"{'output' if projection == 'output' else 'projection'}.{kind}"
        case models.LSTM() | models.GRU():
            array = name.removesuffix("_reverse")
            own = "bias_ih" if array == "bias" else array
            return f"{own}_l0{name.removeprefix(array)}"
        case models.PReLU():
            return "weight"
    return name
