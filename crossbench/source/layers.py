"""Says how a layer is written, and which layers apply the activation behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..models import Layer, NamedLayer
from .statements import Call, code


@dataclass(frozen=True)
class LayerSource:
    """Says how a framework's users write a layer.

    build: makes it; None where it needs no object. output: the expression of its output, in which
    {layer} is its name and {x} its input. definitions: the classes and functions that are named.
    before, after: layers without parameters that its input, and its output, go through.
    """

    build: Call | None
    output: str = "{layer}({x})"
    definitions: tuple[str, ...] = ()
    before: tuple[Call, ...] = ()
    after: tuple[Call, ...] = ()

    @property
    def call(self) -> Call:
        """Return what makes the object of a layer that needs one."""
        assert self.build is not None
        return self.build


def rescaled(scale: float, offset: float) -> LayerSource:
    """Return scale * x + offset as arrays of NumPy have it."""
    return LayerSource(None, f"{{x}} * {code(scale)}{f' + {code(offset)}' if offset else ''}")


def fused(
    layers: Iterable[NamedLayer],
    applying: tuple[type[Layer], ...],
    activation: Callable[[Layer], str | None],
) -> tuple[list[NamedLayer], dict[str, str]]:
    """Return the layers without the activations that the layer before applies itself, and how these
    are written, by the name of that layer.

    applying: the kinds that apply an activation. activation: says how one is written; None for
    another layer.
    """
    kept: list[NamedLayer] = []
    applied: dict[str, str] = {}
    for named in layers:
        written = activation(named.layer)
        can_apply = kept and isinstance(kept[-1].layer, applying)
        if written and can_apply and kept[-1].name not in applied:
            applied[kept[-1].name] = written
        else:
            kept.append(named)
    return kept, applied
