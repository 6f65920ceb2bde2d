"""Compute the figures of a cell from its own records, and its peak from those of other cells.

Nothing here compares two cells: see ranking.py.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import reduce, wraps
from statistics import median
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ..inputs.names import FLOAT32
from .cells import CellResult
from .epochs import TRAIN, Epoch
from .machine import Peak
from .records import Records
from .statistics import Estimate, estimate

Known = TypeVar("Known", bound="Figures")
About = TypeVar("About")
Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")


def once(
    compute: Callable[Concatenate[Known, About, Arguments], Found],
) -> Callable[Concatenate[Known, About, Arguments], Found]:
    """Compute a figure of a cell, a group or a part once where the comparison is frozen."""

    @wraps(compute)
    def known(
        figures: Known, about: About, /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Found:
        cached = figures._known
        if cached is None:
            return compute(figures, about, *arguments, **named)
        which = about.name if isinstance(about, CellResult) else about
        key = (compute, which, arguments, *named.items())
        if key not in cached:
            cached[key] = compute(figures, about, *arguments, **named)
        return cached[key]

    return known


class Figures(Records):
    """Compute the figures of each cell."""

    _known: dict[Any, Any] | None = None
    """The figures that were computed, of a frozen comparison; None for another."""

    def frozen(self) -> Self:
        """Return a copy that computes each figure of a cell once; nothing may be added to it."""
        if self._known is not None:
            return self
        frozen = copy(self)
        frozen._known = {}
        return frozen

    @once
    def seconds_by_round(
        self, result: CellResult, figure: str = "wall_seconds"
    ) -> dict[int, float]:
        """Return the median of the steady epochs of each round, as figures of whole ones."""
        rounds: dict[int, list[float]] = {}
        for epoch in result.steady:
            rounds.setdefault(epoch.round, []).append(self.per_epoch(result, epoch, figure))
        return {number: median(values) for number, values in rounds.items()}

    def per_epoch(self, result: CellResult, epoch: Epoch, figure: str = "wall_seconds") -> float:
        """Return a figure of a whole epoch: that of the timed steps, times all steps by timed."""
        value: float = getattr(epoch, figure)
        return value * self.batches(result) / epoch.steps

    @once
    def seconds(self, result: CellResult, figure: str = "wall_seconds") -> list[float]:
        """Return the seconds of a steady epoch, one value per round."""
        return list(self.seconds_by_round(result, figure).values())

    @once
    def _median(self, result: CellResult) -> float:
        return median(self.seconds(result))

    @once
    def steady(self, result: CellResult, figure: str = "wall_seconds") -> Estimate | None:
        """Return the seconds of a steady epoch over the rounds; None without a finished round."""
        seconds = self.seconds(result, figure)
        return estimate(seconds) if seconds else None

    def shortest(self, result: CellResult) -> float | None:
        """Return the seconds of the fastest steady epoch of all; None without one."""
        return min((self.per_epoch(result, epoch) for epoch in result.steady), default=None)

    def step_seconds(self, result: CellResult) -> Estimate | None:
        """Return the seconds of a steady epoch divided by its steps."""
        steady = self.steady(result)
        return steady.scaled(1 / self.batches(result)) if steady else None

    @once
    def first_epoch(self, result: CellResult, figure: str = "wall_seconds") -> Estimate | None:
        """Return the seconds of a new process' first epoch, with compilation, over the rounds in
        which it was whole.
        """
        seconds = [getattr(epoch, figure) for epoch in self.whole_first_epochs(result)]
        return estimate(seconds) if seconds else None

    def whole_first_epochs(self, result: CellResult) -> list[Epoch]:
        """Return the first epochs of those rounds in which they took all batches."""
        return [epoch for epoch in result.cold if self.is_whole(result, epoch)]

    def is_whole(self, result: CellResult, epoch: Epoch) -> bool:
        """Return whether an epoch took all batches, not the first ones only."""
        return epoch.steps >= self.batches(result)

    def latency(self, result: CellResult, figure: str = "median_seconds") -> Estimate | None:
        """Return the seconds of predicting one batch over the rounds; None for training.

        figure: "median_seconds" or "p99_seconds" of the batches of an epoch.
        """
        seconds = [getattr(latency, figure) for latency in result.latencies]
        return estimate(seconds) if seconds else None

    def examples_per_second(self, result: CellResult) -> float | None:
        """Return the examples per second of a steady epoch."""
        examples = self.batches(result) * result.cell.batch_size
        return examples / self._median(result) if self.seconds(result) else None

    def accuracy(self, result: CellResult) -> float | None:
        """Return the share of the test examples, or of those of a predicted epoch, that is right.

        None for a model without classes.
        """
        if result.predictions is None:
            return result.test_accuracy
        examples = self.batches(result) * result.cell.batch_size
        return result.predictions.correct / examples

    def cores(self, result: CellResult) -> float | None:
        """Return the CPU seconds of a steady epoch divided by its wall seconds."""
        cpu = self.seconds(result, "cpu_seconds")
        return median(cpu) / self._median(result) if cpu else None

    def system_share(self, result: CellResult) -> float | None:
        """Return the share of the steady epochs' CPU seconds in which the kernel worked."""
        cpu = sum(epoch.cpu_seconds * epoch.repeats for epoch in result.steady)
        system = sum(epoch.system_cpu_seconds * epoch.repeats for epoch in result.steady)
        return min(1.0, system / cpu) if cpu else None

    def page_fault_bytes(self, result: CellResult) -> float | None:
        """Return the bytes of the pages that the kernel gave to the process in a steady epoch."""
        faults = self.seconds(result, "page_faults")
        return median(faults) * self.machine.page_bytes if faults else None

    def joules(self, result: CellResult, meter: str) -> float | None:
        """Return the median joules of a steady epoch of all batches; None where not known.

        meter: "cpu_joules" or "gpu_joules".
        """
        joules = [
            total / epoch.repeats * self.batches(result) / epoch.steps
            for epoch in result.steady
            if (total := getattr(epoch.system_activity, meter)) is not None
        ]
        return median(joules) if joules else None

    def runtime_figures(self, result: CellResult) -> dict[str, tuple[float, float | None]]:
        """Return the runtime's own figures: the medians of the first and of the steady epochs."""
        first = self.whole_first_epochs(result)
        whole = self.batches(result)

        def middle(name: str, epochs: list[Epoch]) -> float | None:
            values = [e.figures[name] * whole / e.steps for e in epochs if name in e.figures]
            return median(values) if values else None

        return {
            name: (middle(name, first) or 0.0, middle(name, result.steady))
            for name in (first[0].figures if first else {})
        }

    def gflops(self, result: CellResult) -> float | None:
        """Return the model's 10^9 floating-point operations per second in a steady epoch."""
        examples = self.examples_per_second(result)
        flops = "training_flops" if result.cell.task == TRAIN else "forward_flops"
        return examples * self.model[flops] / 1e9 if examples else None

    def peak(self, result: CellResult) -> Peak | None:
        """Return the highest peak of any framework on the cell's device and threads, in the same
        precision.
        """
        place = result.cell.group[:3]
        peaks = [r.peak for r in self.results if r.cell.group[:3] == place and r.peak]
        return reduce(Peak.highest, peaks) if peaks else None

    def peak_share(self, result: CellResult) -> float | None:
        """Return the cell's FLOPs per second, divided by its peak's; None where one is missing."""
        gflops, peak = self.gflops(result), self.peak(result)
        return gflops / peak.gflops if gflops and peak else None

    def own_peak(self, result: CellResult) -> Peak | None:
        """Return the peak that was measured for the cell, or for one of the same implementation,
        device, threads and precision: it depends on neither the task nor the batch size.
        """
        place = (result.cell.implementation, result.cell.group[:3])
        for other in (result, *self.results):
            if other.peak and (other.cell.implementation, other.cell.group[:3]) == place:
                return other.peak
        return None

    def in_float32(self, result: CellResult) -> CellResult | None:
        """Return the cell that differs from this one in computing in float32 alone."""
        cell, group = result.cell, result.cell.group._replace(compute=FLOAT32)
        for other in self.results:
            if (other.cell.implementation, other.cell.group) == (cell.implementation, group):
                return None if other is result else other
        return None

    def peak_gain(self, result: CellResult) -> float | None:
        """Return the ratio of the cell's own peak to that of `in_float32`."""
        other = self.in_float32(result)
        peak, plain = self.own_peak(result), self.own_peak(other) if other else None
        return peak.gflops / plain.gflops if peak and plain else None

    def cost(self, result: CellResult) -> Estimate | None:
        """Return the cost of a steady epoch at the device's price; None without a price."""
        price = self.settings.prices.get(result.cell.device_type)
        steady = self.steady(result)
        return steady.scaled(price / 3600) if price is not None and steady else None
