"""Define what a run measured, all records together: a comparison without its figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from .cells import CellResult, Group
from .machine import Machine
from .number_types import Positive
from .parts import PartCost
from .reference import Reference
from .settings import Data, Settings

MAX_CELLS = 500
"""Cells of a comparison: a table of 500 rows takes seconds to draw, and nobody reads more."""


@dataclass
class Records:
    """Hold what a run was asked for, and what it measured."""

    schema: int
    """Number of this format; it rises when a field is renamed or changes its meaning."""
    crossbench: str
    """Version that wrote the file."""
    created: str
    """When the run began; UTC, ISO 8601."""
    model: dict[str, Any]
    """Model.description(), which every adapter works from: name, source (where it was published),
    input_shape and output_shape (of one example), classes (null where it predicts numbers), layers,
    loss, optimizer and data (each with its type and fields), parameters (running statistics
    included), trained_parameters (those that the optimizer changes), forward_flops and
    training_flops (of one example, training forward and backward)."""
    data: Data
    """What it was trained and tested on."""
    machine: Machine
    """Where it ran."""
    settings: Settings
    """What was asked for."""
    results: Annotated[list[CellResult], Meta(min_length=1, max_length=MAX_CELLS)]
    """The rows of the table, in its order."""
    reference: Reference | None = None
    """What the NumPy reference gives; None until it is computed, before the first round."""
    parts: list[PartCost] = field(default_factory=list)
    """The parts of a training step, in the order of the layers; empty unless `layers` is set."""
    resumed: list[str] = field(default_factory=list)
    """When it was resumed after an interruption; UTC, ISO 8601."""
    most_turns: Positive = 1
    """Turns, at most, that a round was run in, one after the other: more than one where not all
    processes fit into memory."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of one example."""
        return tuple(self.model["input_shape"])

    @property
    def groups(self) -> list[Group]:
        """Return the groups of cells that are compared with each other, in the cells' order."""
        return list(dict.fromkeys(result.cell.group for result in self.results))

    def batches(self, result: CellResult) -> int:
        """Return the number of batches in the cell's epoch."""
        return self.data.batches(result.cell.batch_size)
