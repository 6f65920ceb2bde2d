"""Tell what a reader must know about one row.

It says why the row has no figures or no rank, and what disturbed its measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median, quantiles
from typing import NamedTuple

from ..inputs.names import BFLOAT16, MALLOC
from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.epochs import Epoch
from ..results.parity import PRECISION_FACTOR
from ..results.statistics import MIN_ROUNDS
from .formatting import count, joined

MAX_LOST_SHARE = 0.1
"""Share of the row's CPUs (one per thread) that other processes or the host may use, and of the
time that a CPU quota may throttle its threads, without a remark."""
MIN_COUNTED_SECONDS = 0.1
"""Seconds of an epoch from which the kernel's counters, in hundredths of a second, tell what other
processes and the host took."""
MAX_INTERQUARTILE_RANGE = 0.1
"""Interquartile range of the steady epochs, relative to their median, without a remark."""
MAX_SYSTEM_SHARE = 0.15
"""Share of a row's CPU seconds in the kernel without a remark."""
MAX_FAULT_RATE = 0.25e9
"""Bytes of new pages for each CPU second of a row without a remark: 61,000 pages of 4 KiB. Each
took 1.7 microseconds in a PyTorch loop on a virtual machine with two Xeon cores, so these take a
tenth of the CPU seconds."""
KERNEL = "the operating system's kernel"
MAX_SHARE_RANGE = 0.15
"""Shares of a steady epoch by which what a runtime, such as its garbage collection, or the kernel
takes may differ between epochs without a remark."""
MAX_FAULT_COST_RATIO, MAX_FAULT_SHARE = 1.3, 0.05
"""Ratio of the kernel's seconds for a page fault between steady epochs without a remark, and the
share of a steady epoch's CPU seconds that it may make without one."""
MIN_FAULTS_SECONDS, MAX_FAULT_SECONDS = 0.5, 2e-5
"""CPU seconds of a steady epoch, at least, in which the cost of a page fault is looked at, and the
kernel's seconds for one, at most: where there were more, it worked for something else."""
MIN_PEAK_SHARE = 2 / 3
"""Share of the best matrix multiplication that a row's own reaches without a remark."""
MIN_GPU_BUSY = 0.5
"""Share of the time: a GPU that is busy for less of it waits for the host."""
MIN_GPU_CLOCK = 0.9
"""Share of the highest mean clock of a round below which the GPU's clock has fallen."""


MIN_BFLOAT16_GAIN = 1.3
"""The smallest ratio of a framework's own peak in bfloat16 to that in float32, on a processor with
such instructions. They multiply twice as many numbers."""


class Problem(NamedTuple):
    """Says what is wrong with a row, and what to do about it, if that is known."""

    fact: str
    advice: str = ""

    @property
    def text(self) -> str:
        return f"{self.fact}: {self.advice}" if self.advice else self.fact


def remarks(comparison: Comparison, result: CellResult) -> list[str]:
    """Return one line for each problem, and say where a ratio is not significant."""
    interrupted = ["interrupted before its last round"] if result.status == "pending" else []
    found = [problem.text for problem in problems(comparison, result)]
    return [*interrupted, *found, *_insignificance(comparison, result)]


def problems(comparison: Comparison, result: CellResult) -> list[Problem]:
    """Return the problems of a row: failures, threads, kernel, peak, GPU, noise."""
    return [
        *_status(comparison, result),
        *_threads(result),
        *_bfloat16(comparison, result),
        *_rough_biases(result),
        *_kernel(comparison, result),
        *_unsteady(result),
        *_fault_cost(result),
        *_low_peak(comparison, result),
        *_above_peak(comparison, result),
        *_gpu(result),
        *_noise(comparison, result),
    ]


def _status(comparison: Comparison, result: CellResult) -> Iterator[Problem]:
    if result.status == "unavailable":
        yield Problem(f"did not run: {result.reason}")
    if result.status == "failed":
        yield Problem(f"failed: {result.reason}")
    if result.parity and (reason := comparison.doubt(result)):
        yield Problem(f"not ranked, {reason}")
    if result.extra_problem:
        yield Problem(result.extra_problem)
    if result.peak_problem:
        yield Problem(
            "the speed of its matrix multiplication and copy was not measured: "
            f"{result.peak_problem}"
        )


def _threads(result: CellResult) -> Iterator[Problem]:
    threads, cell = result.threads_reported, result.cell
    if cell.device == "cpu" and threads is not None and threads != cell.threads:
        yield Problem(
            f"it reports {count(threads, 'thread')} instead of the {cell.threads} requested"
        )
    if result.cpus_allowed is not None and result.cpus_allowed > cell.threads:
        cpus = count(result.cpus_allowed, "CPU")
        yield Problem(f"its threads may run on {cpus} instead of the {cell.threads} requested")


def _bfloat16(comparison: Comparison, result: CellResult) -> Iterator[Problem]:
    """Tell whether the processor cannot multiply in bfloat16, or the framework hardly does."""
    cell, instructions = result.cell, comparison.machine.bfloat16_instructions
    if cell.compute != BFLOAT16 or cell.on_gpu:
        return
    if instructions == []:
        yield Problem(
            "this processor cannot multiply in bfloat16 (it lacks AVX512_BF16, AMX_BF16 and Arm's "
            "BF16)",
            "it converts to float32 and back, so the row can hardly be faster",
        )
    gain = comparison.peak_gain(result)
    if instructions and gain is not None and gain < MIN_BFLOAT16_GAIN:
        yield Problem(
            f"its own matrix multiplication is {gain:.2g} times as fast in bfloat16 as in float32: "
            f"it hardly uses this processor's instructions ({joined(instructions)})"
        )


def _rough_biases(result: CellResult) -> Iterator[Problem]:
    """Tell whether gradients of biases are far from those in float64."""
    if result.precision and (rough := result.precision.rough_biases):
        name, largest = max(rough.items(), key=lambda item: item[1])
        more = f", and {len(rough) - 1} more" if len(rough) > 1 else ""
        yield Problem(
            f"in {result.cell.compute} the {name} is off by {largest:.0%} in the proof{more}, more "
            f"than {PRECISION_FACTOR:.0f} times as far as the reference's with the same rounding"
        )


def _kernel(comparison: Comparison, result: CellResult) -> Iterator[Problem]:
    """Tell whether the kernel took much of the steady epochs' CPU time, and for what."""
    share, given = comparison.system_share(result), comparison.page_fault_bytes(result)
    cpu = comparison.steady(result, "cpu_seconds")
    if share is None or given is None or cpu is None or result.cell.on_gpu:
        return
    counted = sum(epoch.cpu_seconds for epoch in result.steady) > MIN_COUNTED_SECONDS
    if given > MAX_FAULT_RATE * cpu.median:
        step = given / comparison.batches(result) / 1e9
        yield Problem(
            f"in each step {KERNEL} clears {step:.2g} GB of pages for it ({share:.0%} of its "
            "CPU time)",
            "it gives memory back and takes it anew; compare it with its variant "
            f"{MALLOC}, or, where it has none, set MALLOC_MMAP_MAX_=0, "
            "MALLOC_TRIM_THRESHOLD_=2147483647 and MALLOC_ARENA_MAX=1 in the environment",
        )
    elif share > MAX_SYSTEM_SHARE and counted:
        yield Problem(
            f"{share:.0%} of its CPU time is {KERNEL}'s, and not for page faults",
            "`strace -cf` tells which system calls it makes",
        )


def _unsteady(result: CellResult) -> Iterator[Problem]:
    """Tell whether a runtime's own share, or the kernel's, differs between steady epochs."""
    steady = [epoch for epoch in result.steady if epoch.timed_seconds >= MIN_COUNTED_SECONDS]
    if not steady:
        return
    shares = {
        name.removesuffix(" s"): [e.figures.get(name, 0.0) / e.wall_seconds for e in steady]
        for name in steady[0].figures
        if name.endswith(" s")
    }
    shares[KERNEL] = [
        epoch.system_cpu_seconds / (result.cell.threads * epoch.wall_seconds) for epoch in steady
    ]
    for name, found in shares.items():
        if found and max(found) - min(found) > MAX_SHARE_RANGE:
            yield Problem(
                f"{name} took {min(found):.0%} of one steady epoch and {max(found):.0%} of another",
                "" if name == KERNEL else "take more --batches",
            )


def _fault_cost(result: CellResult) -> Iterator[Problem]:
    """Tell whether a page fault took longer in one steady epoch than in another, and slowed it."""
    costs = {
        epoch.system_cpu_seconds / epoch.page_faults: epoch
        for epoch in result.steady
        if epoch.page_faults
        and epoch.cpu_seconds * epoch.repeats > MIN_FAULTS_SECONDS
        and epoch.system_cpu_seconds < MAX_FAULT_SECONDS * epoch.page_faults
    }
    if not costs:
        return
    cheapest, dearest = min(costs), max(costs)
    epoch = costs[dearest]
    more = (dearest - cheapest) * epoch.page_faults
    if dearest > MAX_FAULT_COST_RATIO * cheapest and more > MAX_FAULT_SHARE * epoch.cpu_seconds:
        yield Problem(
            f"a page of new memory took {KERNEL} {1e6 * cheapest:.2g} µs in one steady epoch and "
            f"{1e6 * dearest:.2g} µs in another",
            "run again; a virtual machine may have given free memory back",
        )


def _low_peak(comparison: Comparison, result: CellResult) -> Iterator[Problem]:
    """Tell whether the framework's own matrix multiplication is far from the best one."""
    own, best = comparison.own_peak(result), comparison.peak(result)
    if own is None or best is None or own.gflops >= MIN_PEAK_SHARE * best.gflops:
        return
    blas = result.details.get("BLAS")
    by = f" ({blas})" if blas else ""
    chosen = [] if result.cell.on_gpu else comparison.machine.chosen_instructions
    yield Problem(
        f"its own matrix multiplication{by} reaches {own.gflops / best.gflops:.0%} of the best one "
        f"on this {'GPU' if result.cell.on_gpu else 'processor'}",
        f"unset {joined(chosen)}, and run again" if chosen else "",
    )


def _above_peak(comparison: Comparison, result: CellResult) -> Iterator[Problem]:
    """Tell that the layers of the row are faster than every framework's matrix multiplication."""
    share = comparison.peak_share(result)
    if share is not None and share > 1:
        yield Problem(
            f"its layers reach {share:.0%} of the best matrix multiplication of this run",
            "the device's own peak is higher, and every share of the peak is too large",
        )


def _insignificance(comparison: Comparison, result: CellResult) -> list[str]:
    base, ratio = comparison.base(result), comparison.ratio(result)
    if base is None or base is result or ratio is None or ratio.low is None:
        return []
    return [] if ratio.excludes(1) else [f"not significantly different from {base.name}"]


def _gpu(result: CellResult) -> Iterator[Problem]:
    """Tell whether the GPU waited for the host or lowered its clock in the steady epochs."""
    busy = [usage.gpu_busy for usage in result.usage if usage.gpu_busy is not None]
    if busy and median(busy) < MIN_GPU_BUSY:
        yield Problem(
            f"limited by its CPU side: the GPU was busy for {median(busy):.0%} of the time; use a "
            "larger --batch-size"
        )
    means = [usage.gpu_megahertz for usage in result.usage if usage.gpu_megahertz]
    lows = [usage.gpu_megahertz_lowest for usage in result.usage if usage.gpu_megahertz_lowest]
    reasons = ", ".join(sorted({why for usage in result.usage for why in usage.gpu_throttled}))
    why = f" ({reasons})" if reasons else ""
    advice = "cool it, raise its power limit or lock its clocks"
    if lows and means and min(lows) < MIN_GPU_CLOCK * max(means):
        yield Problem(
            f"the GPU's clock fell to {min(lows):,.0f} MHz, from {max(means):,.0f} in its fastest "
            f"round{why}: {advice}"
        )
    elif reasons:
        at = f", to {median(means):,.0f} MHz" if means else ""
        yield Problem(f"the GPU lowered its clock{at}{why}: {advice}")


def _noise(comparison: Comparison, result: CellResult) -> Iterator[Problem]:
    """Tell what disturbed the steady epochs, all of them taken together."""
    epochs = result.steady
    if not epochs:
        return
    wall = sum(epoch.timed_seconds for epoch in epochs)
    allowed = MAX_LOST_SHARE * result.cell.threads
    counted = [epoch for epoch in epochs if epoch.wall_seconds >= MIN_COUNTED_SECONDS]
    counted_wall = sum(epoch.timed_seconds for epoch in counted) or math.inf
    if (others := _total(counted, "other_processes_cpu_seconds") / counted_wall) > allowed:
        yield Problem(
            f"other processes used {others:.1f} CPUs during its epochs", "stop them and run again"
        )
    if (stolen := _total(counted, "stolen_cpu_seconds") / counted_wall) > allowed:
        yield Problem(
            f"the hypervisor took {stolen:.1f} CPUs during its epochs",
            "run again at another time, or on a dedicated machine",
        )
    # the kernel adds the times of all CPUs up
    throttled = _total(epochs, "throttled_seconds") / wall / result.cell.threads
    if throttled > MAX_LOST_SHARE:
        yield Problem(
            f"a CPU quota throttled its threads for {throttled:.0%} of the time",
            "raise the quota of the container or reduce --threads",
        )
    if events := _total(epochs, "thermal_throttle_events"):
        yield Problem(
            f"the CPU throttled {events:.0f} times because of heat", "cool it and run again"
        )
    if stopped := sum(usage.stopped_seconds for usage in result.usage):
        yield Problem(f"its process was stopped for {stopped:.1f} s during its epochs", "run again")
    seconds = [comparison.per_epoch(result, epoch) for epoch in epochs]
    if len(seconds) >= MIN_ROUNDS:
        low, middle, high = quantiles(seconds, n=4)
        if (relative_range := (high - low) / middle) > MAX_INTERQUARTILE_RANGE:
            yield Problem(
                f"the interquartile range of its epochs is {relative_range:.0%} of the median",
                "the machine is noisy; take more rounds, or run again when it is quieter",
            )


def _total(epochs: list[Epoch], figure: str) -> float:
    """Return the sum over the epochs; what the machine does not report counts as 0."""
    return sum(getattr(epoch.system_activity, figure) or 0 for epoch in epochs)
