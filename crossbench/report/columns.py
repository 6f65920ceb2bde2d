"""Choose which figures of a row each table shows, and write their texts. `Row` describes them."""

from __future__ import annotations

from collections.abc import Iterable

from ..inputs.printable import printable
from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.parity import worst
from ..results.rows import FIGURES, Row
from ..results.statistics import Estimate
from .formatting import (
    EMPTY_CELL,
    MAX_CELL_CHARACTERS,
    integer,
    loss,
    number,
    percent,
    with_interval,
)

SUMMARY = (
    *("task", "batch_size", "title", "variant", "device", "threads", "compute"),
    *("steady_epoch_seconds", "ratio", "float32_ratio", "test_loss", "idiomatic_ratio"),
    *("examples_per_second", "latency_seconds", "latency_p99_seconds", "first_epoch_seconds"),
    *("cores", "peak_memory_bytes", "test_accuracy"),
)
LABELS = ("title", "variant", "device", "task", "threads", "compute", "batch_size")
"""What the tables of the details begin with."""
TIMES = (
    *LABELS,
    *("first_epoch_seconds", "steady_epoch_seconds", "minimum_epoch_seconds", "cpu_seconds"),
    *("cores", "system_share", "page_faults", "examples_per_second", "latency_seconds"),
    *("latency_p99_seconds", "ratio", "idiomatic_ratio", "float32_ratio", "gpu_speedup"),
)
LOSS, DEVIATION = "loss", "deviation"
"""Columns of several figures, which are named by their headers."""
WORK = (
    *LABELS,
    *("gflops_per_second", "share_of_peak", "own_peak_gflops_per_second"),
    *("copy_gigabytes_per_second", LOSS, "test_accuracy", "test_loss", DEVIATION),
    *("peak_memory_bytes", "allocated_bytes"),
)
MERGED = (
    *("machine", "title", "device", "threads", "compute", "task", "batch_size"),
    *("first_epoch_seconds", "steady_epoch_seconds", "cpu_seconds", "cores"),
    *("examples_per_second", "ratio", "test_accuracy", "peak_memory_bytes"),
)
"""What `merge` shows of the rows of several runs."""


def header(name: str, brief: bool = False) -> str:
    """Return the header of a column. brief: that of the summary, which may have two lines."""
    described = FIGURES.get(name)
    if described is None:
        return name
    return described.brief if brief and described.brief else described.header


def headers(comparison: Comparison, names: Iterable[str], brief: bool = False) -> dict[str, str]:
    """Return the headers by the column's name; that of the ratio says what it is relative to."""
    found = {name: header(name, brief) for name in names}
    if baseline := comparison.settings.baseline:
        found["ratio"] = printable(f"× {baseline}", MAX_CELL_CHARACTERS)
    return found


def equal(rows: Iterable[Row], *names: str) -> list[str]:
    """Return those of the figures that are the same in every row."""
    return [name for name in names if len({getattr(row, name) for row in rows}) == 1]


def texts(
    row: Row, result: CellResult, names: Iterable[str], brief: bool = False
) -> dict[str, str]:
    """Return what columns say of a row, by the column's name. brief: as the summary says it."""
    several = {LOSS: _losses, DEVIATION: _deviation}
    return {
        name: several[name](row, result) if name in several else text(row, name, brief)
        for name in names
    }


def text(row: Row, name: str, brief: bool = False) -> str:
    """Return what a column says of a row."""
    described, value = FIGURES[name], getattr(row, name)
    format = described.brief_format if brief else None
    format = format or described.format
    if format == "text":
        return str(value)
    if format == "interval":
        return with_interval(value, described.factor)
    if isinstance(value, Estimate):
        value = value.median
    written = {"whole": integer, "percent": percent, "loss": loss}.get(format, number)
    return written(None if value is None else value * described.factor)


def _losses(row: Row, result: CellResult) -> str:
    """Return the first and the last loss of the first epoch."""
    losses = result.first_losses
    if not losses:
        return EMPTY_CELL
    last = _short_loss(losses[-1]) if len(losses) == row.batches else EMPTY_CELL
    return f"{_short_loss(losses[0])} → {last}"


def _short_loss(value: float | None) -> str:
    if value is None:
        return "not finite"
    return f"{value:.3f}" if abs(value) < 1e5 else f"{value:.1e}"


def _deviation(row: Row, result: CellResult) -> str:
    """Return the largest deviation in the row's precision."""
    if result.parity is None:
        return EMPTY_CELL
    precision = result.precision
    value = worst(precision.observed if precision else result.parity.float32)[1]
    differs = precision is not None and precision.disagreement(result.cell.compute) is not None
    return "differs" if differs or not result.parity.agrees or value is None else f"{value:.1e}"
