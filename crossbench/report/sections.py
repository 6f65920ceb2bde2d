"""Draw the tables that follow the main one where they apply.

They are of batch sizes, thread scaling, cost, time to a target and resource usage.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.epochs import TRAIN
from .formatting import (
    EMPTY_CELL,
    count,
    equal_columns,
    grid,
    integer,
    lines,
    mebibytes,
    number,
    percent,
    target_name,
    target_value,
    with_interval,
)
from .layers import layers
from .row_names import name_with


def requested_sections(
    comparison: Comparison, markdown: bool = False, width: int | None = None
) -> list[str]:
    """Return the tables of what the user asked for, such as several batch sizes or prices.

    width: of a line, in characters, where it is limited.
    """
    tables = [
        batch_sizes(comparison, markdown),
        threads(comparison, markdown),
        cost(comparison, markdown),
        to_target(comparison, markdown),
        layers(comparison, markdown, width),
    ]
    return [section for section in tables if section]


def sections(comparison: Comparison, markdown: bool = False) -> list[str]:
    """Return the requested tables, and the resource usage where there is a GPU or energy."""
    tables = requested_sections(comparison, markdown)
    if any(r.cell.on_gpu for r in comparison.results) or _has_energy(comparison):
        tables.append(usage(comparison, markdown))
    return tables


def batch_sizes(comparison: Comparison, markdown: bool = False) -> str | None:
    """Return the time of a step and of an example by batch size; None for a single batch size."""
    sizes = sorted({r.cell.batch_size for r in comparison.results})
    if len(sizes) == 1:
        return None
    several_tasks = len({r.cell.task for r in comparison.results}) > 1
    rows = [
        {
            "framework": name_with(comparison, cells[0], "device", "threads", "compute"),
            **({"task": cells[0].cell.task} if several_tasks else {}),
            "batch size": f"{r.cell.batch_size:,}",
            "ms per step": with_interval(comparison.step_seconds(r), 1e3),
            "µs per example": with_interval(comparison.step_seconds(r), 1e6 / r.cell.batch_size),
        }
        for cells in by_batch_size(comparison)
        for r in cells
    ]
    return grid(rows, (), 2 if several_tasks else 1, markdown)


def by_batch_size(comparison: Comparison) -> list[list[CellResult]]:
    """Return the cells that differ in the batch size alone, the smallest first, as lists."""
    found: dict[tuple[Any, ...], list[CellResult]] = {}
    for r in comparison.results:
        key = (r.cell.implementation, r.cell.group.place)
        found.setdefault(key, []).append(r)
    return [sorted(cells, key=lambda r: r.cell.batch_size) for cells in found.values()]


def threads(comparison: Comparison, markdown: bool = False) -> str | None:
    """Return the speed-up by number of CPU threads, or None if no framework ran with several."""
    scaled = [r for r in comparison.results if comparison.thread_speedup(r)]
    if not scaled:
        return None
    by_kind = [_cpu_cells(comparison, kind) for kind in dict.fromkeys(map(_kind, scaled))]
    rows = [
        {
            "framework": name_with(comparison, r, "compute", "task", "batch_size"),
            "threads": str(r.cell.threads),
            "steady epoch s": with_interval(comparison.steady(r)),
            "speed-up": with_interval(comparison.thread_speedup(r)),
            "efficiency": with_interval(comparison.efficiency(r)),
        }
        for cells in by_kind
        for r in cells
    ]
    slower = [line for cells in by_kind for line in _slower_with_more_threads(comparison, cells)]
    return "\n".join(filter(None, [grid(rows, markdown=markdown), lines(slower)]))


def _kind(result: CellResult) -> tuple[Any, ...]:
    """Return what cells have in common that differ in the number of threads or the device alone."""
    return result.cell.implementation, result.cell.compute, result.cell.work


def _cpu_cells(comparison: Comparison, kind: tuple[Any, ...]) -> list[CellResult]:
    """Return the CPU cells of a kind, the fewest threads first."""
    cells = [r for r in comparison.results if r.cell.device == "cpu" and _kind(r) == kind]
    return sorted(cells, key=lambda r: r.cell.threads)


def _slower_with_more_threads(comparison: Comparison, cells: list[CellResult]) -> list[str]:
    """Say where more threads are slower than the next fewer. cells: by threads, ascending."""
    found = []
    for fewer, more in pairwise(cells):
        ratio = comparison.paired(more, fewer)
        if ratio and ratio.is_over(1):
            name = name_with(comparison, more, "compute", "task", "batch_size")
            threads = count(more.cell.threads, "thread")
            found.append(f"{name}: {threads} are slower than {fewer.cell.threads}")
    return found


def cost(comparison: Comparison, markdown: bool = False) -> str | None:
    """Return the cost of steady epochs by the price of the device, or None without prices."""
    prices = comparison.settings.prices
    if not prices:
        return None
    rows = [
        {
            "framework": name_with(comparison, r, "compute", "task", "batch_size"),
            "device": r.cell.device,
            "threads": str(r.cell.threads),
            "price of an hour": number(prices.get(r.cell.device_type)),
            "cost of 1,000 epochs": with_interval(comparison.cost(r), 1000),
            f"× {comparison.settings.baseline or 'cheapest'}": with_interval(
                comparison.cost_ratio(r)
            ),
        }
        for r in comparison.results
    ]
    return grid(rows, markdown=markdown)


def to_target(comparison: Comparison, markdown: bool = False) -> str | None:
    """Return the training time until the target accuracy or loss, or None without a target.

    The tests between the epochs are not part of it.
    """
    target = comparison.settings.target
    if target is None:
        return None
    rows = []
    for r in (r for r in comparison.results if r.cell.task == TRAIN):
        reached = r.to_target[-1].reached if r.to_target else None
        met = target.met_by(reached)
        seconds = sum(epoch.wall_seconds for epoch in r.to_target)
        cpu = sum(epoch.cpu_seconds for epoch in r.to_target)
        rows.append(
            {
                "framework": name_with(comparison, r, "compute", "task", "batch_size"),
                "device": r.cell.device,
                "threads": str(r.cell.threads),
                f"seconds to {target_name(target)}": number(seconds) if met else EMPTY_CELL,
                "CPU s": number(cpu) if met else EMPTY_CELL,
                "epochs": str(len(r.to_target)) if r.to_target else EMPTY_CELL,
                "steps": integer(len(r.to_target) * comparison.batches(r) or None),
                target.what: target_value(target, reached),
                "": "" if met or not r.to_target else f"given up after {number(seconds)} s",
            }
        )
    hidden = equal_columns(rows, "device", "threads")
    if not any(row[""] for row in rows):
        hidden.append("")
    return grid(rows, hidden, text_columns=1 if "device" in hidden else 2, markdown=markdown)


def usage(comparison: Comparison, markdown: bool = False) -> str:
    """Return the CPU, memory and GPU usage of each row: medians of its steady epochs.

    Power and energy are those of the whole device, other processes included.
    """
    rows = [
        {
            "framework": name_with(comparison, r, "threads", "compute", "task", "batch_size"),
            "device": r.cell.device,
            "cores": number(comparison.cores(r)),
            "most cores": number(_median_usage(r, "cores_peak")),
            "resident MiB": mebibytes(_median_usage(r, "resident_peak")),
            "GPU busy": percent(_median_usage(r, "gpu_busy")),
            "GPU MiB": mebibytes(_median_usage(r, "gpu_memory_peak")),
            "GPU MHz": integer(_median_usage(r, "gpu_megahertz")),
            "GPU W": number(_median_usage(r, "gpu_watts")),
            "CPU J": number(comparison.joules(r, "cpu_joules")),
            "GPU J": number(comparison.joules(r, "gpu_joules")),
        }
        for r in comparison.results
    ]
    return grid(rows, markdown=markdown)


def _has_energy(comparison: Comparison) -> bool:
    kinds = ("cpu_joules", "gpu_joules")
    return any(comparison.joules(r, kind) is not None for r in comparison.results for kind in kinds)


def _median_usage(result: CellResult, figure: str) -> float | None:
    return _median([getattr(u, figure) for u in result.usage])


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
