"""The tables below the table, each where it was asked for: threads, cost, time to accuracy."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from ..results.comparison import Comparison
from ..results.records import CellResult
from ..results.statistics import Estimate
from .figures import NOTHING, count, grid, lines, number, percent, spread, whole


def sections(comparison: Comparison) -> list[str]:
    found = [threads(comparison), cost(comparison), accuracy(comparison)]
    if any(r.cell.on_gpu for r in comparison.results) or _has_energy(comparison):
        found.append(usage(comparison))
    return [section for section in found if section]


def threads(comparison: Comparison) -> str | None:
    """Speed-up by threads, for frameworks that ran with several numbers of them on the CPU."""
    scaled = [r for r in comparison.results if comparison.thread_speedup(r)]
    if not scaled:
        return None
    frameworks = list(dict.fromkeys(r.cell.framework for r in scaled))
    cells = sorted(
        (
            r
            for r in comparison.results
            if r.cell.framework in frameworks and r.cell.device == "cpu"
        ),
        key=lambda r: (frameworks.index(r.cell.framework), r.cell.threads),
    )
    rows = [
        {
            "framework": r.cell.title,
            "threads": str(r.cell.threads),
            "steady epoch s": spread(comparison.steady(r)),
            "speed-up": spread(comparison.thread_speedup(r)),
            "efficiency": spread(comparison.efficiency(r)),
        }
        for r in cells
    ]
    slower = _slower(comparison, cells)
    return "\n".join([grid(rows), lines(slower)]) if slower else grid(rows)


def _slower(comparison: Comparison, cells: list[CellResult]) -> list[str]:
    """Where more threads take longer than the next fewer."""
    found = []
    for fewer, more in pairwise(cells):
        ratio = comparison.paired(more, fewer)
        if more.cell.framework == fewer.cell.framework and ratio and ratio.is_over(1):
            found.append(
                f"{more.cell.title}: {count(more.cell.threads, 'thread')} are slower than "
                f"{fewer.cell.threads}"
            )
    return found


def cost(comparison: Comparison) -> str | None:
    """Of a steady epoch, by the price of the device."""
    prices = comparison.settings.prices
    if not prices:
        return None
    rows = [
        {
            "framework": r.cell.title,
            "device": r.cell.device,
            "threads": str(r.cell.threads),
            "price of an hour": number(prices.get(r.cell.device_type)),
            "cost of 1,000 epochs": spread(_thousand(comparison, r)),
            f"× {comparison.settings.baseline or 'cheapest'}": spread(comparison.cost_ratio(r)),
        }
        for r in comparison.results
    ]
    return grid(rows)


def _thousand(comparison: Comparison, result: CellResult) -> Estimate | None:
    cost = comparison.cost(result)
    return cost.scaled(1000) if cost else None


def accuracy(comparison: Comparison) -> str | None:
    """Seconds of training, without the tests between the epochs, until the target was reached."""
    target = comparison.settings.target_accuracy
    if target is None:
        return None
    rows = []
    for r in comparison.results:
        reached = bool(r.to_accuracy) and r.to_accuracy[-1].accuracy >= target
        seconds = sum(epoch.wall_seconds for epoch in r.to_accuracy)
        cpu = sum(epoch.cpu_seconds for epoch in r.to_accuracy)
        rows.append(
            {
                "framework": r.cell.title,
                "device": r.cell.device,
                "threads": str(r.cell.threads),
                f"seconds to {target:.0%}": number(seconds) if reached else NOTHING,
                "CPU s": number(cpu) if reached else NOTHING,
                "epochs": str(len(r.to_accuracy)) if r.to_accuracy else NOTHING,
                "accuracy": percent(r.to_accuracy[-1].accuracy if r.to_accuracy else None),
                "": "" if reached or not r.to_accuracy else f"given up after {number(seconds)} s",
            }
        )
    return grid(rows)


def usage(comparison: Comparison) -> str:
    """What each cell had in use in its steady epochs: medians of them; power and energy are of the
    whole device, other processes included.
    """
    rows = [
        {
            "framework": r.cell.title,
            "device": r.cell.device,
            "cores": number(comparison.cores(r)),
            "most cores": number(_seen(r, "cores_peak")),
            "resident MiB": whole(_mebibytes(_seen(r, "resident_peak"))),
            "GPU busy": percent(_seen(r, "gpu_busy")),
            "GPU MiB": whole(_mebibytes(_seen(r, "gpu_memory_peak"))),
            "GPU MHz": whole(_seen(r, "gpu_megahertz")),
            "GPU W": number(_seen(r, "gpu_watts")),
            "CPU J": number(_joules(r, "cpu_joules")),
            "GPU J": number(_joules(r, "gpu_joules")),
        }
        for r in comparison.results
    ]
    return grid(rows)


def _has_energy(comparison: Comparison) -> bool:
    kinds = ("cpu_joules", "gpu_joules")
    return any(_joules(r, kind) is not None for r in comparison.results for kind in kinds)


def _seen(result: CellResult, figure: str) -> float | None:
    return _median([getattr(u, figure) for u in result.usage])


def _joules(result: CellResult, figure: str) -> float | None:
    """Return the joules of one epoch."""
    totals = [(getattr(e.surroundings, figure), e.repeats) for e in result.steady]
    return _median([None if total is None else total / repeats for total, repeats in totals])


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _mebibytes(value: float | None) -> float | None:
    return None if value is None else value / 2**20
