"""Orders what a module computes as a description: layers behind one another, and branches of them.

A module's graph may have any form; a description is a chain whose links may be branches. Each join
begins where all that is joined was still one value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from ....inputs.errors import SpecError
from ....models import (
    AveragePool,
    Branches,
    Flatten,
    GlobalAveragePool,
    GlobalMaxPool,
    Layer,
    MaxPool,
    Rescaling,
    RMSNorm,
    Scale,
)
from ....models.parameters import Shape


@dataclass(frozen=True, eq=False)
class Step:
    """Holds a layer, or a join of several inputs.

    before: the steps that compute its inputs; None for the module's own input. shape: of its
    outputs, as the description has them. line: the user's. node: the name of the graph's. weights:
    the layer's arrays, by their names in the description. is_whole: whether it is a pool of all
    places.
    """

    before: tuple[Step | None, ...]
    shape: Shape
    line: str
    node: str
    layer: Layer | None = None
    join: str = ""
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    is_whole: bool = False

    def __post_init__(self) -> None:
        _ = self.depth  # while those before are known: a module may have a thousand steps

    @cached_property
    def start(self) -> Step | None:
        """Return the last step that all ways to this one go through."""
        first, *others = self.before
        for other in others:
            first = _common(first, other)
        return first

    @cached_property
    def depth(self) -> int:
        """Return the number of steps that all ways to this one go through."""
        return 1 if self.start is None else self.start.depth + 1


def _common(a: Step | None, b: Step | None) -> Step | None:
    """Return the last step that all ways to both go through, which may be one of them."""
    while a is not b:
        if b is None or (a is not None and a.depth >= b.depth):
            assert a is not None
            a = a.start
        else:
            b = b.start
    return a


@dataclass(frozen=True)
class Link:
    """Holds a layer of a description with what it was read from; branches: those of Branches."""

    layer: Layer
    step: Step
    branches: tuple[tuple[Link, ...], ...] = ()


class Chain:
    """Makes layers of steps; raises SpecError where a step would be in two places."""

    def __init__(self) -> None:
        self.used: set[int] = set()

    def links(self, start: Step | None, end: Step | None) -> tuple[Link, ...]:
        """Return the layers from behind one step up to another one."""
        found: list[Link] = []
        while end is not start:
            assert end is not None
            if id(end) in self.used:
                raise SpecError(
                    f"{end.line}: what is computed here goes to several places that do not meet "
                    "again in one, which has no description"
                )
            self.used.add(id(end))
            if end.layer is not None:
                found.append(Link(end.layer, end))
            else:
                branches = tuple(self.links(end.start, before) for before in end.before)
                layers = tuple(tuple(link.layer for link in branch) for branch in branches)
                found.append(Link(Branches(layers, end.join), end, branches))
            end = end.start
        return merged(found[::-1])


def merged(links: list[Link]) -> tuple[Link, ...]:
    """Return the layers, where two that the description has one word for are one."""
    found: list[Link] = []
    for link in links:
        layer = one_layer(found[-1], link) if found else None
        if layer is None:
            found.append(link)
        else:
            before = found.pop().step
            weights = {**before.weights, **link.step.weights}
            step = replace(link.step, before=before.before, layer=layer, weights=weights)
            found.append(Link(layer, step))
    return tuple(found)


def one_layer(first: Link, second: Link) -> Layer | None:
    """Return the layer that two are together, or None."""
    match first.layer, second.layer:
        case AveragePool(), Flatten() if first.step.is_whole:
            return GlobalAveragePool()
        case MaxPool(), Flatten() if first.step.is_whole:
            return GlobalMaxPool()
        case Rescaling(a, b), Rescaling(c, d):
            return Rescaling(a * c, b * c + d)
        case RMSNorm(epsilon, False), Scale():
            return RMSNorm(epsilon)
    return None


def in_order(links: tuple[Link, ...]) -> Iterator[Link]:
    """Yield the layers in the order in which they are computed: inner ones before their join."""
    for link in links:
        for branch in link.branches:
            yield from in_order(branch)
        yield link


def all_links(links: tuple[Link, ...]) -> Iterator[Link]:
    """Yield the layers in the order of a description's, each followed by its inner ones."""
    for link in links:
        yield link
        for branch in link.branches:
            yield from all_links(branch)
