"""Write a model as its layers in Keras, and say which variables of it are the parameters.

Imports no Keras.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ... import models
from ...models.layers.branches import ADD
from ...models.model import Model, NamedLayer
from ...source.layers import LayerSource, fused
from ...source.places import Place
from ...source.statements import WIDTH, Call, bracketed, code, indented
from ...source.training_programs import Block, grouped
from .parameters import places
from .source import ACTIVATIONS, layer_source


class Network:
    """Writes a model: a keras.Sequential, or where layers branch or are no objects, by the
    functional API.

    lines: the statements that make the `model`. functions: those that apply equal blocks of it.
    """

    def __init__(self, model: Model, backend: str) -> None:
        self.model = model
        self.is_tied = any(isinstance(n.layer, models.Unembedding) for n in model.all_layers())
        layers = list(model.named_layers())
        self.activations: dict[str, str] = {}
        self.kept: set[str] = set()
        self._fuse(layers)
        self.sources = dict(self._sources(backend))
        self.functions: list[str] = []
        self.is_sequential = all(map(self._is_item, self._kept(layers)))
        shape = model.input_shape
        given = [code((*shape[1:], shape[0]) if len(shape) == 3 else shape)]
        inputs = Call("keras.Input", (*given, *['dtype="int32"'] * (model.vocabulary is not None)))
        if self.is_sequential:
            sources = [self.sources[named.name] for named in self._kept(layers)]
            made = ((*source.before, source.call, *source.after) for source in sources)
            calls = [inputs, *(call for calls in made for call in calls)]
            items = [bracketed(f"{c.function}(", c.arguments, "),", WIDTH - 8) for c in calls]
            items = indented(["[", *indented(items), "]"])
            self.lines = ["model = keras.Sequential(", *items, ")"]
        else:
            self.lines = [inputs.assigned_to("inputs"), *self._chain(layers, "inputs", "x")]
            outputs = self.lines[-1].removeprefix("x = ")
            self.lines[-1:] = [f"outputs = {outputs}", "model = keras.Model(inputs, outputs)"]

    def places(self) -> dict[str, Place]:
        """Return where the model holds each parameter, by its full canonical name: the path is that
        of Keras' variable.
        """
        start = "sequential/" if self.is_sequential else ""
        names, found = Counter[str](), {}
        for named in self.model.all_layers():
            source = self.sources.get(named.name)
            if source is None or source.build is None:
                continue
            build = source.build
            layer = _next_name(build.function, names)
            inner = build.arguments[0] if build.arguments else None
            cell = _next_name(inner.function, names) if isinstance(inner, Call) else layer
            for name, place in places(named).items():
                path = f"{start}{layer}/{_variable_path(place.path, cell)}"
                found[f"{named.name}.{name}"] = replace(place, path=path)
        return found

    def _fuse(self, layers: Sequence[NamedLayer]) -> None:
        """Find the activations that the layer before applies, in branches too."""
        kept, activations = fused(layers, (models.Convolution, models.Dense), ACTIVATIONS.get)
        self.kept |= {named.name for named in kept}
        self.activations |= activations
        for named in layers:
            for branch in named.branches:
                self._fuse(branch)

    def _sources(self, backend: str) -> Iterator[tuple[str, LayerSource]]:
        """Yield how each layer is written that no other one applies, by its canonical name."""
        for named in self.model.all_layers():
            if isinstance(named.layer, models.Branches) or named.name not in self.kept:
                continue
            source = layer_source(named, backend, self.activations.get(named.name))
            if self.is_tied and isinstance(named.layer, models.Embedding):
                build = replace(source.call, function="layers.ReversibleEmbedding")
                source = replace(source, build=build)
            yield named.name, source

    def _is_item(self, named: NamedLayer) -> bool:
        """Return whether a keras.Sequential can hold a layer."""
        source = self.sources.get(named.name)
        return source is not None and bool(source.build) and source.output == LayerSource.output

    def _kept(self, layers: Sequence[NamedLayer]) -> Iterator[NamedLayer]:
        """Yield the layers that no other one applies."""
        return (named for named in layers if named.name in self.kept)

    def _chain(self, layers: Sequence[NamedLayer], x: str, to: str, room: int = WIDTH) -> list[str]:
        """Return the statements that apply layers to the variable x, with the result in another."""
        lines = []
        for part in grouped(list(self._kept(layers)), self.activations):
            if isinstance(part, Block):
                lines += [] if x == to else [f"{to} = {x}"]
                lines.append(f"for _ in range({part.count}):")
                lines.append(f"    {to} = {self._block(part)}({to})")
            elif isinstance(part.layer, models.Branches):
                lines += self._joined(part, part.layer.join, x, to, room)
            else:
                lines += self._layer(part, x, to, room)
            x = to
        return lines

    def _layer(self, named: NamedLayer, x: str, to: str, room: int) -> list[str]:
        lines, source = [], self.sources[named.name]
        for before in source.before:
            lines.append(f"{to} = {before}({x})")
            x = to
        _, _, applied = source.output.format(layer="()", x=x).partition("()")
        if self.is_tied and isinstance(named.layer, models.Embedding):
            lines += [source.call.assigned_to("embedding"), f"{to} = embedding({x})"]
        elif source.build is None:
            lines.append(f"{to} = {source.output.format(x=x)}")
        elif len(made := f"{to} = {source.build}") < room:
            lines.append(bracketed(f"{made}(", [applied[1:-1]], ")", room))
        else:
            start = f"{to} = {source.build.function}("
            lines.append(bracketed(start, source.build.arguments, f"){applied}", room))
        return [*lines, *(f"{to} = {after}({to})" for after in source.after)]

    def _joined(self, named: NamedLayer, join: str, x: str, to: str, room: int) -> list[str]:
        """Return the statements of branches, in variables that no branch around them has."""
        names = ["y", "shortcut"]
        if join != ADD or len(named.branches) > 2:
            names = [f"y{number}" for number in range(1, len(named.branches) + 1)]
        lines, ends = [], []
        for branch, name in zip(named.branches, names, strict=True):
            own = name if to == "x" else f"{to}_{name}"
            lines += self._chain(branch, x, own, room)
            ends.append(own if branch else x)
        return [*lines, f"{to} = layers.{join.capitalize()}()([{', '.join(ends)}])"]

    def _block(self, block: Block) -> str:
        """Write the function that applies a block, and return its name."""
        number = len(self.functions) + 1
        name = f"block{number}" if number > 1 else "block"
        self.functions.append("")
        *body, last = self._chain(block.layers, "x", "x", WIDTH - 4)
        body.append(f"return {last.removeprefix('x = ')}")
        self.functions[number - 1] = "\n".join([f"def {name}(x):", *indented(body)])
        return name


def _next_name(function: str, names: Counter[str]) -> str:
    """Return the name that Keras gives a layer: that of its class, with a number after the first.

    names: how often each was given.
    """
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", function.removeprefix("layers."))
    name = re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()
    names[name] += 1
    return name if names[name] == 1 else f"{name}_{names[name] - 1}"


def _variable_path(attributes: str, layer: str) -> str:
    """Return the path of a variable in its layer. layer: the name of a recurrent one."""
    path = attributes.replace("output_dense", "attention_output").replace("_dense.", "/")
    path = path.replace("cell.", f"{re.sub('_[0-9]+$', '', layer)}_cell/")
    return path.replace("_layer.", f"_{layer}/").replace(".", "/")
