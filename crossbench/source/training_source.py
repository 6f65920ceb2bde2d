"""Holds the source code of a model's training in Python.

It is the module that a row runs, whose parts programs are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .statements import join_blocks

Network = TypeVar("Network")


@dataclass(frozen=True, kw_only=True)
class TrainingSource(Generic[Network]):
    """Holds the source code of a model's training.

    network: what has written the model. imports: returns the statements that import what a text
    needs. definitions: the classes and functions that the statements need. made: the statements
    that make the `model`. compiled: those that make its loss and its optimizer. functions: those
    that use all these, by name.
    """

    network: Network
    imports: Callable[[str], list[str]]
    definitions: Sequence[str]
    made: Sequence[str] = ()
    compiled: Sequence[str] = ()
    functions: Mapping[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """Return the Python module of the training."""
        statements = ["\n".join([*self.made, *self.compiled])]
        blocks = [*self.definitions, *filter(None, statements), *self.functions.values()]
        return join_blocks(["\n".join(self.imports("\n".join(blocks))), *blocks])
