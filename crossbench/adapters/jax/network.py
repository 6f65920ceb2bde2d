"""Write a model as Flax NNX classes, and say where they hold its parameters. Imports no Flax."""

from __future__ import annotations

import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from keyword import iskeyword

from ... import models
from ...models.layers.branches import ADD, CONCATENATE, MULTIPLY
from ...models.model import NamedLayer, Path, common_path
from ...source.layers import LayerSource
from ...source.places import Place, places
from ...source.statements import WIDTH, Call, indented
from ...source.training_programs import Block, grouped
from .parameters import attributes
from .source import last_output, layer_source

MAX_NESTED = 70
"""Characters of a statement in which a layer's output may be the next one's argument."""
Source = Callable[[NamedLayer], LayerSource]
"""Says how a layer is written, as `layer_source` does."""


class Network:
    """Writes a model as nnx.Module classes: `Model`, and one of each kind of block that repeats.

    classes: their source code, in order. calls: those that make a block, by its `key`. definitions:
    what layers need. paths: of each layer that the model holds, with the layer.
    """

    def __init__(self, layers: Iterable[NamedLayer], source: Source = layer_source) -> None:
        self.source = source
        self.definitions: dict[str, None] = {}
        self.calls: dict[str, str] = {}
        self.classes: list[str] = []
        parts = list(grouped(list(layers)))
        self._write_blocks([part for part in parts if isinstance(part, Block)])
        self.classes.append(f"class Model(nnx.Module):\n{self._body(parts)}")
        self.paths = list(self._paths(parts))

    def places(self) -> dict[str, Place]:
        """Return where the model holds each parameter, by its full canonical name."""
        return {
            f"{named.name}.{name}": replace(place, path=f"{path}.{place.path}")
            for path, named in self.paths
            for name, place in places(named, attributes).items()
        }

    def _write_blocks(self, blocks: Sequence[Block]) -> None:
        """Write the classes of blocks, one for those that differ in their width alone."""
        alike: dict[str, list[Block]] = defaultdict(list)
        for block in blocks:
            alike[self._body(block.layers, block.width)].append(block)
        for number, (body, found) in enumerate(alike.items(), start=1):
            name = "Block" if len(alike) == 1 else f"Block{number}"
            is_shared = len(found) > 1
            body = body if is_shared else self._body(found[0].layers)
            self.classes.append(f"class {name}(nnx.Module):\n{body}")
            for block in found:
                self.calls[key(block)] = f"{name}({f'{block.width}, ' * is_shared}rngs)"

    def _body(self, parts: Sequence[NamedLayer | Block], features: int | None = None) -> str:
        """Return a class without its first line. features: a number that is an argument."""
        names = self._attributes(parts)
        made = [line for part in flattened(parts) for line in self._made(part, names, features)]
        forward = Forward(names, self.source)
        output = forward.chain(parts)
        lines = [
            f"def __init__(self, {'features: int, ' if features else ''}rngs: nnx.Rngs):",
            *indented(made),
            "",
            "def __call__(self, x: jax.Array) -> jax.Array:",
            *indented([*forward.lines, f"return {output}"]),
        ]
        return "\n".join(indented(lines))

    def _made(self, part: NamedLayer | Block, names: Attributes, features: int | None) -> list[str]:
        """Return the statement that makes a layer, or equal blocks, in a list."""
        if isinstance(part, NamedLayer):
            self.definitions |= dict.fromkeys(self.source(part).definitions)
        if key(part) not in names:
            return []
        attribute = f"self.{names[key(part)]} = "
        if isinstance(part, Block):
            made = f"[{self.calls[key(part)]} for _ in range({part.count})]"
            return [f"{attribute}nnx.List({made})"]
        build = self.source(part).call
        given = ("features" if a == str(features) else a for a in build.arguments)
        return [Call(build.function, tuple(given)).after(attribute, WIDTH - 8)]

    def _attributes(self, parts: Sequence[NamedLayer | Block]) -> Attributes:
        """Return the names of what a class of these layers holds: those of the module that the
        model was read from, or the layers' kinds, numbered where one repeats.
        """
        held = [p for p in flattened(parts) if isinstance(p, Block) or self.source(p).build]
        found = module_names(held)
        kinds = {key(part): kind(part) for part in held if key(part) not in found}
        counts, taken = Counter(kinds.values()), set(found.values())
        for name, of_kind in kinds.items():
            first = [of_kind] if counts[of_kind] == 1 else []
            numbered = (f"{of_kind}{number}" for number in count(1))
            found[name] = next(one for one in chain(first, numbered) if one not in taken)
            taken.add(found[name])
        return found

    def _paths(
        self, parts: Sequence[NamedLayer | Block], start: str = ""
    ) -> Iterator[tuple[str, NamedLayer]]:
        """Yield the path of each layer that a class holds, in blocks too, with the layer."""
        names = self._attributes(parts)
        for part in flattened(parts):
            if isinstance(part, Block):
                for number, group in enumerate([part.layers, *part.repeated]):
                    yield from self._paths(group, f"{start}{names[key(part)]}.{number}.")
            elif part.name in names:
                yield f"{start}{names[part.name]}", part


class Forward:
    """Writes the statements that apply layers to x, one for each layer with weights.

    names: the layers' attributes.
    """

    def __init__(self, names: Attributes, source: Source) -> None:
        self.names, self.source = names, source
        self.lines: list[str] = []

    def chain(self, parts: Iterable[NamedLayer | Block], depth: int = 0, x: str = "x") -> str:
        """Return the expression of the output of layers, behind its statements.

        depth: how many variables of branches around them are taken. x: their input.
        """
        for part in parts:
            if isinstance(part, Block):
                x = self._assigned(x, depth)
                blocks = f"self.{self.names[key(part)]}"
                self.lines += [f"for block in {blocks}:", f"    {x} = block({x})"]
            elif isinstance(part.layer, models.Branches):
                x = self._joined(part, part.layer.join, depth, self._assigned(x, depth))
            else:
                x = self._applied(part, depth, x)
        return x

    def _joined(self, named: NamedLayer, join: str, depth: int, x: str) -> str:
        """Return the expression of branches' outputs, each in a variable of its own; the last
        branch takes that of their input, unless that is needed.
        """
        *first, last = named.branches
        outputs = []
        for own_depth, branch in enumerate(first, start=depth + 1):
            output = self.chain(branch, own_depth, x)
            is_residual = len(first) == 1 and not last and join == ADD
            outputs.append(output if is_residual else self._assigned(output, own_depth))
        is_free = x not in outputs and not any(each.branches for each in last)
        own_depth = depth if is_free else depth + len(named.branches)
        output = self.chain(last, own_depth, x)
        if join == CONCATENATE:
            return f"jnp.concatenate([{', '.join([*outputs, output])}], axis=-1)"
        if join == MULTIPLY and is_joined(output):
            output = self._assigned(output, own_depth)
        return SIGNS[join].join([output, *reversed(outputs)])

    def _applied(self, named: NamedLayer, depth: int, x: str) -> str:
        layer = named.layer
        attribute = self.names.get(named.name) or self.names.get("embedding1")  # an Unembedding's
        if isinstance(layer, models.Recurrent) and not (layer.sequences or layer.bidirectional):
            last = last_output(named, variable(depth))
            self.lines.append(f"{last} = self.{attribute}({self._assigned(x, depth)})")
            return variable(depth)
        output = self.source(named).output.replace("{layer}", f"self.{attribute}")
        begins = named.parameters and not isinstance(layer, NORMS)
        is_long = output.count("{x}") > 1 or len(output) + len(x) > MAX_NESTED
        if begins or is_long or (is_joined(x) and output.startswith("{x}")):
            x = self._assigned(x, depth)
        return output.format(x=x)

    def _assigned(self, expression: str, depth: int) -> str:
        """Return the name of a variable that has the value, which may be one already."""
        if expression.isidentifier():
            return expression
        self.lines.append(f"{variable(depth)} = {expression}")
        return variable(depth)


SIGNS = {ADD: " + ", MULTIPLY: " * "}


def is_joined(expression: str) -> bool:
    """Return whether an expression is a sum or a product."""
    return any(sign in expression for sign in SIGNS.values())


def variable(depth: int) -> str:
    """Return the variable of a layer's output, where so many others are taken."""
    return "xyzuvw"[depth] if depth < 6 else f"x{depth}"


NORMS = models.BatchNorm | models.GroupNorm | models.LayerNorm | models.RMSNorm
KINDS = {
    "batchnorm": "batch_norm",
    "classtoken": "class_token",
    "conv1d": "conv",
    "dense": "linear",
    "groupnorm": "group_norm",
    "layernorm": "layer_norm",
    "multiheadattention": "attention",
    "positionembedding": "positions",
    "rmsnorm": "rms_norm",
    "transposedconv": "conv_transpose",
}
"""What Flax's users call layers, by the name of their kind in a description, where it differs."""
Attributes = Mapping[str, str]
"""Names of the attributes of a class, by `key`."""


def kind(part: NamedLayer | Block) -> str:
    """Return the name of an attribute without its number."""
    if isinstance(part, Block):
        return "blocks"
    name = part.name.rstrip(string.digits)
    return KINDS.get(name, name)


def module_names(held: Sequence[NamedLayer | Block]) -> dict[str, str]:
    """Return the names that a module has for layers and blocks, by `key`, below what all of them
    are in; none for those that are only numbered there, and for two with one name.
    """
    paths = {key(part): path for part in held if (path := module_path(part))}
    start = len(common_path(path[:-1] for path in paths.values()))
    names = {key: "_".join(path[start:]) for key, path in paths.items()}
    counts = Counter(names.values())
    return {
        key: name
        for key, name in names.items()
        if counts[name] == 1 and name.isidentifier() and not iskeyword(name)
    }


def module_path(part: NamedLayer | Block) -> Path:
    """Return the names that lead to a layer in its module, or to all of equal blocks."""
    if isinstance(part, Block):
        layers = [layer for group in (part.layers, *part.repeated) for layer in flattened(group)]
        return common_path(path[:-1] for layer in layers if (path := module_path(layer)))
    return part.own_path


def key(part: NamedLayer | Block) -> str:
    """Return the unique name of a layer, or that of the first one in a block."""
    return part.layers[0].name if isinstance(part, Block) else part.name


def flattened(parts: Iterable[NamedLayer | Block]) -> Iterator[NamedLayer | Block]:
    """Yield layers in order, those of branches in their place."""
    for part in parts:
        if isinstance(part, NamedLayer) and isinstance(part.layer, models.Branches):
            for branch in part.branches:
                yield from flattened(branch)
        else:
            yield part
