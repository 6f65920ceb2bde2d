"""Describe each figure of a row once: how it is computed of a cell, and how the tables show it.

A table names the figures that it shows (report/columns.py); files and `Comparison.rows()` have all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any, Literal

from .cells import CellResult
from .parity import worst
from .ranking import Ranking
from .statistics import Estimate

Value = str | int | float | bool | None
"""What a field of a row as a dict may be."""
Format = Literal["text", "whole", "number", "percent", "loss", "interval", "median"]
"""How a figure is written: as text, as a whole number, with three digits, as a percentage, with the
four decimals of a loss, as an estimate with its interval, or as the median of one alone."""


@dataclass(frozen=True)
class Figure:
    """Describe a figure of a row.

    of: computes it of a cell. header: in tables, with its unit; empty where none shows it. factor:
    what turns the figure's unit into that of the header. brief, brief_format: the header of two
    lines and the format in the summary, where they differ.
    """

    of: Callable[[Ranking, CellResult], Any]
    header: str = ""
    format: Format = "number"
    factor: float = 1.0
    brief: str = ""
    brief_format: Format | None = None


def figure(*description: Any, **more: Any) -> Any:
    """Return the field of a row that a Figure describes."""
    return field(metadata={"figure": Figure(*description, **more)})


def _steady_median(figure: str) -> Callable[[Ranking, CellResult], float | None]:
    """Return what computes the median of a figure of the steady epochs over the rounds."""

    def of(comparison: Ranking, result: CellResult) -> float | None:
        values = comparison.seconds(result, figure)
        return median(values) if values else None

    return of


def _reason(comparison: Ranking, result: CellResult) -> str | None:
    return result.reason or (comparison.doubt(result) if result.parity else None)


def _base_name(comparison: Ranking, result: CellResult) -> str | None:
    base = comparison.base(result)
    return base.name if base else None


def _own_peak(figure: str) -> Callable[[Ranking, CellResult], float | None]:
    """Return what reads a figure of the peak that was measured for a cell."""
    return lambda comparison, result: getattr(comparison.own_peak(result), figure, None)


def _last_loss(comparison: Ranking, result: CellResult) -> float | None:
    losses = result.first_losses
    return losses[-1] if len(losses) == comparison.batches(result) else None


def _cost(comparison: Ranking, result: CellResult) -> float | None:
    cost = comparison.cost(result)
    return cost.median if cost else None


@dataclass(frozen=True)
class Row:
    """Hold the figures of one cell; None where they are not known.

    Each name ends in the unit; a share is a fraction and a ratio has none.
    """

    model: str = figure(lambda c, r: c.model["name"])
    data: str = figure(lambda c, r: c.data.name)
    machine: str = figure(lambda c, r: c.machine.name, "machine", "text")
    created: str = figure(lambda c, r: c.created)
    """When the run began; UTC, ISO 8601."""
    framework: str = figure(lambda c, r: r.cell.framework)
    variant: str = figure(lambda c, r: r.cell.variant, "variant", "text")
    title: str = figure(lambda c, r: r.cell.title, "framework", "text")
    """Name of the framework as the tables show it."""
    device: str = figure(lambda c, r: r.cell.device, "device", "text")
    threads: int = figure(lambda c, r: r.cell.threads, "threads", "whole")
    compute: str = figure(lambda c, r: r.cell.compute, "compute", "text")
    """What matrix multiplications and convolutions are computed in: float32, tf32 or bfloat16."""
    task: str = figure(lambda c, r: r.cell.task, "task", "text")
    """What an epoch does: train or predict."""
    batch_size: int = figure(lambda c, r: r.cell.batch_size, "batch size", "whole", brief="batch")
    batches: int = figure(Ranking.batches)
    """Number of steps of an epoch."""
    status: str = figure(lambda c, r: r.status)
    ranked: bool = figure(Ranking.is_ranked)
    """Whether the figures may be compared with those of other rows."""
    reason: str | None = figure(_reason)
    """Why the row has no figures or is not ranked, in a line."""
    rounds: int = figure(lambda c, r: len(c.seconds(r)))
    """Number of finished rounds."""
    steady_epoch_seconds: Estimate | None = figure(Ranking.steady, "steady epoch s", "interval")
    ratio: Estimate | None = figure(Ranking.ratio, "× fastest", "interval")
    """Steady seconds relative to those of the row `relative_to`, paired by round."""
    relative_to: str | None = figure(_base_name)
    """Name of the baseline's row or of the fastest, on the same device and threads, with the same
    precision, task and batch size."""
    idiomatic_ratio: Estimate | None = figure(Ranking.idiomatic_ratio, "× idiomatic", "interval")
    """Steady seconds of a variant relative to those of its framework's idiomatic row."""
    float32_ratio: Estimate | None = figure(Ranking.float32_ratio, "× float32", "interval")
    """Steady seconds relative to those of the same row in float32."""
    examples_per_second: float | None = figure(
        Ranking.examples_per_second, "examples/s", brief="examples\nper s"
    )
    step_seconds: Estimate | None = figure(Ranking.step_seconds, format="interval")
    """Seconds of a steady epoch divided by its steps."""
    latency_seconds: Estimate | None = figure(
        Ranking.latency, "latency ms", "interval", 1e3, "latency\nms", "median"
    )
    """Seconds of predicting one batch and waiting for it: the median over an epoch's batches."""
    latency_p99_seconds: Estimate | None = figure(
        lambda c, r: c.latency(r, "p99_seconds"),
        *("99 % ms", "interval", 1e3, "99 % in\nms", "median"),
    )
    """The 99th percentile of the same."""
    first_epoch_seconds: Estimate | None = figure(
        Ranking.first_epoch, "first epoch s", "interval", 1.0, "first\nepoch s", "median"
    )
    minimum_epoch_seconds: float | None = figure(Ranking.shortest, "min s")
    """The fastest of all steady epochs."""
    cpu_seconds: float | None = figure(_steady_median("cpu_seconds"), "CPU s")
    """CPU time of all threads in a steady epoch."""
    cores: float | None = figure(Ranking.cores, "cores", brief="cores\nused")
    system_cpu_seconds: float | None = figure(_steady_median("system_cpu_seconds"))
    """The part of cpu_seconds in which the operating system's kernel worked for the process."""
    system_share: float | None = figure(Ranking.system_share, "OS kernel", "percent")
    """The same as a share of the CPU seconds of all steady epochs."""
    page_faults: float | None = figure(_steady_median("page_faults"), "page faults", "whole")
    """Minor page faults of a steady epoch."""
    gpu_speedup: Estimate | None = figure(Ranking.gpu_speedup, "GPU speed-up", "interval")
    """How many times faster the GPU is than the framework's own row on the CPU."""
    gflops_per_second: float | None = figure(Ranking.gflops, "GFLOP/s")
    share_of_peak: float | None = figure(Ranking.peak_share, "of peak", "percent")
    own_peak_gflops_per_second: float | None = figure(_own_peak("gflops"), "own peak")
    """What the framework's own matrix multiplication reached, without a model."""
    copy_gigabytes_per_second: float | None = figure(_own_peak("copy_gigabytes"), "copy GB/s")
    """What the framework's own copy reached, reads and writes both counted."""
    memory_gigabytes_per_second: float | None = figure(_own_peak("memory_gigabytes"))
    """What the memory itself reaches: NumPy's copy, or the GPU's bandwidth."""
    first_loss: float | None = figure(lambda c, r: r.first_losses[0] if r.first_losses else None)
    last_loss: float | None = figure(_last_loss)
    """Losses of the first and the last batch of the first epoch; of one that was cut short there is
    no last one."""
    test_accuracy: float | None = figure(Ranking.accuracy, "accuracy", "percent")
    """Share of the test examples that is predicted right after training, or, where an epoch
    predicts, share of its own examples with the initial weights."""
    test_loss: float | None = figure(
        lambda c, r: r.test_loss, "test loss", "loss", brief="test\nloss"
    )
    """Mean loss of the test examples after training."""
    float64_deviation: float | None = figure(
        lambda c, r: worst(r.parity.float64)[1] if r.parity else None
    )
    float32_deviation: float | None = figure(
        lambda c, r: worst(r.parity.float32)[1] if r.parity else None
    )
    """Deviation from the reference of the tensor that differs most, ‖a - b‖ / ‖b‖."""
    peak_memory_bytes: int | None = figure(
        lambda c, r: r.peak_memory, "peak MiB", "whole", 2**-20, "peak\nMiB"
    )
    allocated_bytes: int | None = figure(lambda c, r: r.allocated, "allocated MiB", "whole", 2**-20)
    cost: float | None = figure(_cost)
    """Cost of a steady epoch, in the currency of the price."""


FIGURES: dict[str, Figure] = {field.name: field.metadata["figure"] for field in fields(Row)}
"""The figures of a row by name, in the order of files."""


def rows(comparison: Ranking) -> list[Row]:
    """Return a row for each cell: by groups, in each the ranked first, by seconds."""
    comparison = comparison.frozen()
    groups = comparison.groups

    def position(result: CellResult) -> tuple[int, bool, float]:
        steady = comparison.steady(result)
        seconds = float("inf") if steady is None else steady.median
        return groups.index(result.cell.group), not comparison.is_ranked(result), seconds

    return [row(comparison, result) for result in sorted(comparison.results, key=position)]


def row(comparison: Ranking, result: CellResult) -> Row:
    """Return the figures of a cell."""
    return Row(**{name: each.of(comparison, result) for name, each in FIGURES.items()})


def as_dict(row: Row) -> dict[str, Value]:
    """Return the fields by name, and each estimate as estimate_fields does."""
    found: dict[str, Value] = {}
    for name, each in FIGURES.items():
        value = getattr(row, name)
        found |= estimate_fields(name, value) if each.format == "interval" else {name: value}
    return found


def estimate_fields(name: str, estimate: Estimate | None) -> dict[str, Value]:
    """Return an estimate as five fields.

    NAME is the median, NAME_low and NAME_high the 95 % interval, NAME_minimum and NAME_maximum the
    extremes.
    """
    found: dict[str, Value] = {name: estimate.median if estimate else None}
    for part in ("low", "high", "minimum", "maximum"):
        found[f"{name}_{part}"] = getattr(estimate, part) if estimate else None
    return found
