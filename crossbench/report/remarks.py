"""What a reader must know of one cell, in lines: why it has no figures or no rank, and what
disturbed it.
"""

from __future__ import annotations

from statistics import median, quantiles

from ..results.comparison import Comparison
from ..results.records import CellResult, Epoch
from ..results.statistics import LEAST
from .figures import count

OTHERS = 0.1
"""CPUs that other processes or the host may use meanwhile, as a share of the cell's threads."""
SPREAD = 0.1
"""How far the quartiles of the rounds may lie apart, relative to the median."""
BUSY = 0.5
"""Of the epoch: a GPU that works for less of it waits for the host."""
CLOCK = 0.9
"""Of its highest clock, below which a GPU's clock has fallen."""


def remarks(comparison: Comparison, result: CellResult) -> list[str]:
    """Failures first, then threads, then noise, each with what to do next."""
    return [
        *_status(comparison, result),
        *_threads(result),
        *_no_difference(comparison, result),
        *_gpu(result),
        *_noise(result),
    ]


def _status(comparison: Comparison, result: CellResult) -> list[str]:
    lines = []
    if result.status == "unavailable":
        lines.append(f"did not run: {result.reason}")
    if result.status == "failed":
        lines.append(f"failed: {result.reason}")
    if result.status == "pending":
        lines.append("interrupted before its last round")
    if result.parity and (reason := comparison.doubt(result)):
        lines.append(f"not ranked, {reason}")
    if result.no_peak:
        lines.append(f"its matrix product and copy were not measured: {result.no_peak}")
    return lines


def _threads(result: CellResult) -> list[str]:
    threads, cell, lines = result.threads_reported, result.cell, []
    if cell.device == "cpu" and threads is not None and threads != cell.threads:
        lines.append(f"{count(cell.threads, 'thread')} asked for, but it uses {threads}")
    if result.cpus_allowed is not None and result.cpus_allowed > cell.threads:
        lines.append(f"its threads may run on {result.cpus_allowed} CPUs: {cell.threads} asked for")
    return lines


def _no_difference(comparison: Comparison, result: CellResult) -> list[str]:
    base, ratio = comparison.base(result), comparison.ratio(result)
    if base is None or base is result or ratio is None or ratio.low is None:
        return []
    return [] if ratio.excludes(1) else [f"no difference from {base.name} is shown"]


def _gpu(result: CellResult) -> list[str]:
    """Say whether the GPU waited for the host or lowered its clock in the steady epochs."""
    lines = []
    busy = [usage.gpu_busy for usage in result.usage if usage.gpu_busy is not None]
    if busy and median(busy) < BUSY:
        lines.append(
            f"limited by the host: the GPU worked for {median(busy):.0%} of the time; a larger "
            "--batch-size gives it more to do at a time"
        )
    means = [usage.gpu_megahertz for usage in result.usage if usage.gpu_megahertz]
    lows = [usage.gpu_megahertz_lowest for usage in result.usage if usage.gpu_megahertz_lowest]
    reasons = ", ".join(sorted({why for usage in result.usage for why in usage.gpu_throttled}))
    why = f" ({reasons})" if reasons else ""
    advice = "cool it, raise its power limit or lock its clocks"
    if lows and means and min(lows) < CLOCK * max(means):
        lines.append(
            f"the GPU's clock fell to {min(lows):,.0f} MHz, from {max(means):,.0f} in its fastest "
            f"round{why}: {advice}"
        )
    elif reasons:
        at = f", to {median(means):,.0f} MHz" if means else ""
        lines.append(f"the GPU lowered its clock{at}{why}: {advice}")
    return lines


def _noise(result: CellResult) -> list[str]:
    """From the steady epochs, taken together."""
    epochs = result.steady
    if not epochs:
        return []
    lines = []
    wall = sum(epoch.timed_seconds for epoch in epochs)
    if (others := _total(epochs, "others_cpu_seconds") / wall) > OTHERS * result.cell.threads:
        lines.append(
            f"other processes used {others:.1f} of its CPUs meanwhile: end them and run again"
        )
    if (stolen := _total(epochs, "stolen_cpu_seconds") / wall) > OTHERS * result.cell.threads:
        lines.append(
            f"the virtual machine's host took {stolen:.1f} of its CPUs meanwhile: run again when "
            "the host is quiet, or on a machine of your own"
        )
    if (held := _total(epochs, "held_back_seconds") / wall) > OTHERS:
        lines.append(
            f"a CPU quota held its threads back for {held:.0%} of the time: raise the quota of "
            "the container, or give --threads fewer"
        )
    if events := _total(epochs, "throttle_events"):
        lines.append(f"the processor throttled for heat {events:.0f} times: cool it and run again")
    if stopped := sum(usage.stopped_seconds for usage in result.usage):
        lines.append(f"its process was stopped for {stopped:.1f} s meanwhile: run again")
    seconds = [epoch.wall_seconds for epoch in epochs]
    if len(seconds) >= LEAST:
        low, middle, high = quantiles(seconds, n=4)
        if (spread := (high - low) / middle) > SPREAD:
            lines.append(
                f"the middle half of its rounds lies {spread:.0%} apart: the machine is noisy; "
                "use --rounds auto, or a quieter time"
            )
    return lines


def _total(epochs: list[Epoch], figure: str) -> float:
    """Of the epochs, 0 where the machine does not tell."""
    return sum(getattr(epoch.surroundings, figure) or 0 for epoch in epochs)
