"""Name the rows of a comparison for a reader, by what they differ in."""

from __future__ import annotations

from ..results.cells import CellResult, Group
from ..results.comparison import Comparison
from .formatting import count


def row_name(comparison: Comparison, result: CellResult) -> str:
    """Return a row's name for a reader: the framework, and of the device, the number of threads,
    the precision, the task and the batch size what rows differ in; else the cell's own name if rows
    share that.
    """
    found = name_with(comparison, result, *Group._fields)
    names = [name_with(comparison, other, *Group._fields) for other in comparison.results]
    return found if names.count(found) == 1 else result.name


def name_with(comparison: Comparison, result: CellResult, *fields: str) -> str:
    """Return the framework and those of the fields of a Group that cells differ in."""
    cell = result.cell
    words = {
        "device": cell.device,
        "threads": count(cell.threads, "thread"),
        "compute": cell.compute,
        "task": cell.task,
        "batch_size": f"batches of {cell.batch_size:,}",
    }
    differing = [
        field for field in fields if len({getattr(r.cell, field) for r in comparison.results}) > 1
    ]
    return ", ".join([cell.label, *(words[field] for field in differing)])
