"""Derive one row of plain figures from each cell of a comparison: what every output shows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from statistics import median
from typing import TYPE_CHECKING

from .cells import CellResult
from .parity import worst
from .statistics import Estimate

if TYPE_CHECKING:
    from .comparison import Comparison

Value = str | int | float | bool | None
"""What a field of a row as a dict may be."""


@dataclass(frozen=True)
class Row:
    """Hold the figures of one cell; None where they are not known.

    Each name ends in the unit; a share is a fraction and a ratio has none.
    """

    model: str
    data: str
    machine: str
    created: str
    """When the run began; UTC, ISO 8601."""
    framework: str
    variant: str
    title: str
    """Name of the framework as the tables show it."""
    device: str
    threads: int
    compute: str
    """What matrix multiplications and convolutions are computed in: float32, tf32 or bfloat16."""
    task: str
    """What an epoch does: train or predict."""
    batch_size: int
    batches: int
    """Number of steps of an epoch."""
    status: str
    ranked: bool
    """Whether the figures may be compared with those of other rows."""
    reason: str | None
    """Why the row has no figures or is not ranked, in a line."""
    rounds: int
    """Number of finished rounds."""
    steady_epoch_seconds: Estimate | None
    ratio: Estimate | None
    """Steady seconds relative to those of the row `relative_to`, paired by round."""
    relative_to: str | None
    """Name of the baseline's row or of the fastest, on the same device and threads, with the same
    precision, task and batch size."""
    idiomatic_ratio: Estimate | None
    """Steady seconds of a variant relative to those of its framework's idiomatic row."""
    float32_ratio: Estimate | None
    """Steady seconds relative to those of the same row in float32."""
    examples_per_second: float | None
    step_seconds: Estimate | None
    """Seconds of a steady epoch divided by its steps."""
    latency_seconds: Estimate | None
    """Seconds of predicting one batch and waiting for it: the median over an epoch's batches."""
    latency_p99_seconds: Estimate | None
    """The 99th percentile of the same."""
    first_epoch_seconds: Estimate | None
    minimum_epoch_seconds: float | None
    """The fastest of all steady epochs."""
    cpu_seconds: float | None
    """CPU time of all threads in a steady epoch."""
    cores: float | None
    system_cpu_seconds: float | None
    """The part of cpu_seconds in which the kernel worked for the process."""
    system_share: float | None
    """The same as a share of the CPU seconds of all steady epochs."""
    page_faults: float | None
    """Minor page faults of a steady epoch."""
    gpu_speedup: Estimate | None
    """How many times faster the GPU is than the framework's own row on the CPU."""
    gflops_per_second: float | None
    share_of_peak: float | None
    own_peak_gflops_per_second: float | None
    """What the framework's own matrix multiplication reached, without a model."""
    copy_gigabytes_per_second: float | None
    """What the framework's own copy reached, reads and writes both counted."""
    memory_gigabytes_per_second: float | None
    """What the memory itself reaches: NumPy's copy, or the GPU's bandwidth."""
    first_loss: float | None
    last_loss: float | None
    """Losses of the first and the last batch of the first epoch; of one that was cut short there is
    no last one."""
    test_accuracy: float | None
    """Share of the test examples that is predicted right after training, or, where an epoch
    predicts, share of its own examples with the initial weights."""
    test_loss: float | None
    """Mean loss of the test examples after training."""
    float64_deviation: float | None
    float32_deviation: float | None
    """Deviation from the reference of the tensor that differs most, ‖a - b‖ / ‖b‖."""
    peak_memory_bytes: int | None
    allocated_bytes: int | None
    cost: float | None
    """Cost of a steady epoch, in the currency of the price."""


def rows(comparison: Comparison) -> list[Row]:
    """Return a row for each cell: by groups, in each the ranked first, by seconds."""
    comparison = comparison.frozen()
    groups = comparison.groups

    def position(result: CellResult) -> tuple[int, bool, float]:
        steady = comparison.steady(result)
        seconds = float("inf") if steady is None else steady.median
        return groups.index(result.cell.group), not comparison.is_ranked(result), seconds

    return [row(comparison, result) for result in sorted(comparison.results, key=position)]


def row(comparison: Comparison, result: CellResult) -> Row:
    cell, parity = result.cell, result.parity
    losses = result.first_losses
    own, base = comparison.own_peak(result), comparison.base(result)
    cost = comparison.cost(result)
    return Row(
        model=comparison.model["name"],
        data=comparison.data.name,
        machine=comparison.machine.name,
        created=comparison.created,
        framework=cell.framework,
        variant=cell.variant,
        title=cell.title,
        device=cell.device,
        threads=cell.threads,
        compute=cell.compute,
        task=cell.task,
        batch_size=cell.batch_size,
        batches=comparison.batches(result),
        status=result.status,
        ranked=comparison.is_ranked(result),
        reason=result.reason or (comparison.doubt(result) if parity else None),
        rounds=len(comparison.seconds(result)),
        steady_epoch_seconds=comparison.steady(result),
        ratio=comparison.ratio(result),
        relative_to=base.name if base else None,
        idiomatic_ratio=comparison.idiomatic_ratio(result),
        float32_ratio=comparison.float32_ratio(result),
        examples_per_second=comparison.examples_per_second(result),
        step_seconds=comparison.step_seconds(result),
        latency_seconds=comparison.latency(result),
        latency_p99_seconds=comparison.latency(result, "p99_seconds"),
        first_epoch_seconds=comparison.first_epoch(result),
        minimum_epoch_seconds=comparison.shortest(result),
        cpu_seconds=_steady_median(comparison, result, "cpu_seconds"),
        cores=comparison.cores(result),
        system_cpu_seconds=_steady_median(comparison, result, "system_cpu_seconds"),
        system_share=comparison.system_share(result),
        page_faults=_steady_median(comparison, result, "page_faults"),
        gpu_speedup=comparison.gpu_speedup(result),
        gflops_per_second=comparison.gflops(result),
        share_of_peak=comparison.peak_share(result),
        own_peak_gflops_per_second=own.gflops if own else None,
        copy_gigabytes_per_second=own.copy_gigabytes if own else None,
        memory_gigabytes_per_second=own.memory_gigabytes if own else None,
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if len(losses) == comparison.batches(result) else None,
        test_accuracy=comparison.accuracy(result),
        test_loss=result.test_loss,
        float64_deviation=worst(parity.float64)[1] if parity else None,
        float32_deviation=worst(parity.float32)[1] if parity else None,
        peak_memory_bytes=result.peak_memory,
        allocated_bytes=result.allocated,
        cost=cost.median if cost else None,
    )


def _steady_median(comparison: Comparison, result: CellResult, figure: str) -> float | None:
    values = comparison.seconds(result, figure)
    return median(values) if values else None


def as_dict(row: Row) -> dict[str, Value]:
    """Return the fields by name, and each estimate as estimate_fields does."""
    found: dict[str, Value] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        estimated = "Estimate" in str(field.type)
        found |= estimate_fields(field.name, value) if estimated else {field.name: value}
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
