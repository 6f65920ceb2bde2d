"""Define Comparison: everything that was measured, the figures derived from it, and its file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import reduce
from statistics import median
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..inputs.errors import ResultsError
from ..inputs.names import FLOAT32, IDIOMATIC
from ..inputs.printable import printable
from . import agreement, breakdown, doubts, drawing, file
from .cells import CellResult, Group
from .epochs import TRAIN, Epoch
from .machine import Machine, Peak
from .number_types import Positive
from .parts import Part
from .reference import Reference
from .rows import Value, as_dict, rows
from .settings import Data, Settings
from .statistics import PRECISION, Estimate, estimate, round_ratios
from .validation import check

SCHEMA = 16
RENAMED = {
    b"allocator_settings": b"environment",
    b"masked_losses": b"undropped_losses",
    b"given dropout masks": b"without dropouts",
}
"""Map names of schema 15, the first that was published, to the present ones. The losses that are
without dropouts now were of given dropout masks, and are held to the same bounds."""
PAGE_RESULTS = re.compile(rb'<script [^>]*class="crossbench-results">(.*?)</script>')
"""Where a page holds the results of a run."""
MAX_CELLS = 500
"""Cells of a comparison: a table of 500 rows takes seconds to draw, and nobody reads more."""
SECONDS_PER_ROW = 60.0
"""Limit for as many rounds as are needed, by the rows of the table."""
UNREADABLE = (msgspec.MsgspecError, RecursionError, TypeError, ValueError, OverflowError)
"""What msgspec raises for JSON, or for values, that are not a comparison; nesting that is too deep
raises RecursionError."""


def without_data(model: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a model without its source of data, which the data's checksum tells
    apart.
    """
    return {name: value for name, value in model.items() if name != "data"}


@dataclass
class Comparison:
    """Hold the result of `crossbench.run`; `crossbench.load` reads the same from a file."""

    schema: int
    crossbench: str
    created: str
    """UTC, ISO 8601."""
    model: dict[str, Any]
    """Model.description()."""
    data: Data
    machine: Machine
    settings: Settings
    results: Annotated[list[CellResult], Meta(min_length=1, max_length=MAX_CELLS)]
    reference: Reference | None = None
    """None until it is computed, before the first round."""
    parts: list[Part] = field(default_factory=list)
    """The parts of a training step, in the order of the layers; empty unless `layers` is set."""
    resumed: list[str] = field(default_factory=list)
    """When it was resumed after an interruption; UTC, ISO 8601."""
    most_turns: Positive = 1
    """Turns, at most, that a round was run in, one after the other: more than one where not all
    processes fit into memory."""

    def __repr__(self) -> str:
        cells = ", ".join(f"{r.name}: {r.status}" for r in self.results)
        return printable(f"<Comparison of {self.model['name']} ({cells})>")

    def __str__(self) -> str:
        """Return the summary: the deciding columns, who is fastest, parity and the warnings."""
        return drawing.as_text(self)

    def _repr_html_(self) -> str:
        """Return the summary as HTML: a notebook shows it."""
        return drawing.as_html(self)

    def rows(self) -> list[dict[str, Value]]:
        """Return a dict of plain figures for each cell, as pandas and polars take them.

        Row lists the names; of an estimate NAME is the median, NAME_low and NAME_high the 95 %
        interval, NAME_minimum and NAME_maximum the extremes.
        """
        return [as_dict(row) for row in rows(self)]

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

    def per_epoch(self, result: CellResult, epoch: Epoch, figure: str = "wall_seconds") -> float:
        """Return a figure of a whole epoch: that of the timed steps, times all steps by timed."""
        value: float = getattr(epoch, figure)
        return value * self.batches(result) / epoch.steps

    def steady(self, result: CellResult, figure: str = "wall_seconds") -> Estimate | None:
        """Return the seconds of a steady epoch over the rounds; None without a finished round."""
        seconds = self.seconds(result, figure)
        return estimate(seconds) if seconds else None

    def frozen(self) -> Comparison:
        """Return a copy that computes each figure of a cell once; nothing may be added to it."""
        return _Frozen(**{field.name: getattr(self, field.name) for field in fields(self)})

    def shortest(self, result: CellResult) -> float | None:
        """Return the seconds of the fastest steady epoch of all; None without one."""
        return min((self.per_epoch(result, epoch) for epoch in result.steady), default=None)

    def seconds(self, result: CellResult, figure: str = "wall_seconds") -> list[float]:
        """Return the seconds of a steady epoch, one value per round."""
        return list(self.seconds_by_round(result, figure).values())

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

    def examples_per_second(self, result: CellResult) -> float | None:
        """Return the examples per second of a steady epoch."""
        examples = self.batches(result) * result.cell.batch_size
        return examples / self._median(result) if self.seconds(result) else None

    def batches(self, result: CellResult) -> int:
        """Return the number of batches in the cell's epoch."""
        return self.data.batches(result.cell.batch_size)

    def step_seconds(self, result: CellResult) -> Estimate | None:
        """Return the seconds of a steady epoch divided by its steps."""
        steady = self.steady(result)
        return steady.scaled(1 / self.batches(result)) if steady else None

    def latency(self, result: CellResult, figure: str = "median_seconds") -> Estimate | None:
        """Return the seconds of predicting one batch over the rounds; None for training.

        figure: "median_seconds" or "p99_seconds" of the batches of an epoch.
        """
        seconds = [getattr(latency, figure) for latency in result.latencies]
        return estimate(seconds) if seconds else None

    def accuracy(self, result: CellResult) -> float | None:
        """Return the share of the test examples, or of those of a predicted epoch, that is right.

        None for a model without classes.
        """
        if result.predictions is None:
            return result.test_accuracy
        examples = self.batches(result) * result.cell.batch_size
        return result.predictions.correct / examples

    @property
    def groups(self) -> list[Group]:
        """Return the groups of cells that are compared with each other, in the cells' order."""
        return list(dict.fromkeys(result.cell.group for result in self.results))

    def ranked(self, group: Group) -> list[CellResult]:
        """Return the ranked cells of a group, the fastest first."""
        cells = [r for r in self.results if r.cell.group == group and self.is_ranked(r)]
        return sorted(cells, key=self._median)

    def is_ranked(self, result: CellResult) -> bool:
        """Return whether the cell's figures may be compared.

        It must have done the same work, not have failed, and have a finished round. An interrupted
        cell is ranked by the rounds that it has.
        """
        runs = result.status in ("ran", "pending") and bool(self.seconds(result))
        return runs and self.doubt(result) is None

    def doubt(self, result: CellResult) -> str | None:
        """Return why the figures of a cell that ran are not ranked, in a line, or None."""
        return self.own_doubt(result) or agreement.differing_from_others(self, result)

    def own_doubt(self, result: CellResult) -> str | None:
        """Return the same, without comparing what the cell computed to that of others."""
        return doubts.own_doubt(self, result)

    def base(self, result: CellResult) -> CellResult | None:
        """Return the cell that a cell is compared with: the baseline, or the fastest, of its group.
        None where the cell itself, or the baseline, is not ranked.
        """
        if not self.is_ranked(result):
            return None
        ranked = self.ranked(result.cell.group)
        baseline = self.settings.baseline
        return next((r for r in ranked if baseline in (None, r.cell.implementation)), None)

    def ratio(self, result: CellResult) -> Estimate | None:
        """Return the ratio of the cell's seconds to its base's, paired by round.

        None without a base or a common round.
        """
        base = self.base(result)
        return self.paired(result, base) if base else None

    def idiomatic_ratio(self, result: CellResult) -> Estimate | None:
        """Return the ratio of a variant's seconds to those of its framework's idiomatic cell of the
        same group, paired by round; None for that cell, or without it.
        """
        idiomatic = (result.cell.framework, IDIOMATIC, result.cell.group)
        for other in self.results:
            cell = other.cell
            if (cell.framework, cell.variant, cell.group) == idiomatic:
                return None if other is result else self.paired(result, other)
        return None

    def float32_ratio(self, result: CellResult) -> Estimate | None:
        """Return the ratio of the cell's seconds to those of `in_float32`, paired by round."""
        other = self.in_float32(result)
        return self.paired(result, other) if other else None

    def in_float32(self, result: CellResult) -> CellResult | None:
        """Return the cell that differs from this one in computing in float32 alone."""
        cell, group = result.cell, result.cell.group._replace(compute=FLOAT32)
        for other in self.results:
            if (other.cell.implementation, other.cell.group) == (cell.implementation, group):
                return None if other is result else other
        return None

    def gpu_speedup(self, result: CellResult) -> Estimate | None:
        """Return how many times faster a GPU cell is than its framework's CPU cell with the most
        threads, paired by round.
        """
        if not result.cell.on_gpu or not self.is_ranked(result):
            return None
        cpu = self._thread_cells(result)
        return self.paired(cpu[-1], result) if cpu else None

    def paired(self, numerator: CellResult, denominator: CellResult) -> Estimate | None:
        """Return the ratio of two cells' seconds, paired by round; None if one is not ranked."""
        ratios = self.round_ratios(numerator, denominator)
        return estimate(list(ratios.values())) if ratios else None

    def round_ratios(self, numerator: CellResult, denominator: CellResult) -> dict[int, float]:
        """Return the ratio of two cells' seconds by common round; empty if one is not ranked."""
        if not (self.is_ranked(numerator) and self.is_ranked(denominator)):
            return {}
        return round_ratios(self.seconds_by_round(numerator), self.seconds_by_round(denominator))

    def thread_speedup(self, result: CellResult) -> Estimate | None:
        """Return how many times faster a CPU cell is than its framework's with the fewest threads,
        paired by round; None where it is that cell, or either is not ranked.
        """
        cells = self._thread_cells(result)
        if result.cell.device != "cpu" or not self.is_ranked(result) or result is cells[0]:
            return None
        return self.paired(cells[0], result)

    def efficiency(self, result: CellResult) -> Estimate | None:
        """Return the speed-up divided by the factor of the threads: 1 is perfect scaling."""
        speedup = self.thread_speedup(result)
        fewest = self._thread_cells(result)
        return speedup.scaled(fewest[0].cell.threads / result.cell.threads) if speedup else None

    def peak_gain(self, result: CellResult) -> float | None:
        """Return the ratio of the cell's own peak to that of `in_float32`."""
        other = self.in_float32(result)
        peak, plain = self.own_peak(result), self.own_peak(other) if other else None
        return peak.gflops / plain.gflops if peak and plain else None

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

    def cost(self, result: CellResult) -> Estimate | None:
        """Return the cost of a steady epoch at the device's price; None without a price."""
        price = self.settings.prices.get(result.cell.device_type)
        steady = self.steady(result)
        return steady.scaled(price / 3600) if price is not None and steady else None

    def cost_ratio(self, result: CellResult) -> Estimate | None:
        """Return the cost relative to the cheapest ranked cell of the same task and batch size,
        paired by round.

        With a baseline, relative to the cheapest of that framework.
        """
        baseline, prices = self.settings.baseline, self.settings.prices
        bases = [
            r
            for r in self.results
            if baseline in (None, r.cell.implementation)
            and r.cell.work == result.cell.work
            and r.cell.device_type in prices
            and self.is_ranked(r)
        ]
        if not bases or result.cell.device_type not in prices or not self.is_ranked(result):
            return None
        base = min(bases, key=lambda r: self._median(r) * prices[r.cell.device_type])
        factor = prices[result.cell.device_type] / prices[base.cell.device_type]
        ratio = self.paired(result, base)
        return ratio.scaled(factor) if ratio else None

    def part_figures(self, part: Part) -> dict[str, breakdown.PartFigures]:
        """Return what a part of a training step takes in each cell, by the cell's name."""
        return breakdown.part_figures(self, part)

    @property
    def decided(self) -> bool:
        """Return whether every ratio's interval is as narrow as asked for.

        Where no precision was asked for, it may also lie clearly on one side of 1. For a cell
        without another to compare with, the interval is that of its seconds.
        """
        comparison = self.frozen()
        return all(comparison._is_decided(result) for result in self.results)

    @property
    def max_round_seconds(self) -> float:
        """Return the limit for as many rounds as are needed."""
        rows = sum(result.status != "unavailable" for result in self.results)
        return self.settings.max_seconds or SECONDS_PER_ROW * rows

    @property
    def complete(self) -> bool:
        """Return whether every cell that the user named ran, and nothing failed or disagreed."""
        return all(
            (r.status == "ran" and self.is_ranked(r) and r.extra_problem is None)
            or (r.status == "unavailable" and not r.cell.named)
            for r in self.results
        )

    def save(self, path: str | os.PathLike[str], packed: bool = False) -> None:
        """Write a new file; ResultsError where it exists already or cannot be written.

        packed: by gzip, which every command reads as well.
        """
        content = file.packed(self.encode()) if packed else self.encode()
        with file.new_file(path) as write:
            write(content)

    def replace(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically: whatever happens, it holds the old comparison or this one."""
        file.replace(path, self.encode())

    def encode(self) -> bytes:
        """Return the file's content, JSON; ResultsError for what `load` would refuse."""
        try:
            content = msgspec.json.format(msgspec.json.encode(self), indent=1)
            _decode(content)
        except UNREADABLE as error:
            raise ResultsError(f"the results cannot be written: {printable(str(error))}") from None
        return content

    def _median(self, result: CellResult) -> float:
        return median(self.seconds(result))

    def seconds_by_round(
        self, result: CellResult, figure: str = "wall_seconds"
    ) -> dict[int, float]:
        """Return the median of the steady epochs of each round, as figures of whole ones."""
        rounds: dict[int, list[float]] = {}
        for epoch in result.steady:
            rounds.setdefault(epoch.round, []).append(self.per_epoch(result, epoch, figure))
        return {number: median(values) for number, values in rounds.items()}

    def _thread_cells(self, result: CellResult) -> list[CellResult]:
        """Return the ranked CPU cells that differ from this one in the threads or the device alone,
        the fewest threads first.
        """
        same = (result.cell.implementation, result.cell.compute, result.cell.work)
        cells = [
            r
            for r in self.results
            if (r.cell.implementation, r.cell.compute, r.cell.work) == same
            and r.cell.device == "cpu"
            and self.is_ranked(r)
        ]
        return sorted(cells, key=lambda r: r.cell.threads)

    def _is_decided(self, result: CellResult) -> bool:
        """Return whether the interval of the cell's ratio, or of its seconds, is narrow enough."""
        base, wanted = self.base(result), self.settings.precision
        if base is result:
            alone = len(self.ranked(result.cell.group)) == 1
            seconds = self.steady(result)
            return not alone or seconds is None or seconds.width < (wanted or PRECISION)
        ratio = self.ratio(result)
        if ratio is None or ratio.width < (wanted or PRECISION):
            return True
        return wanted is None and ratio.is_clear


_CACHED = (
    "first_epoch",
    "idiomatic_ratio",
    "steady",
    "seconds",
    "ranked",
    "is_ranked",
    "own_doubt",
    "doubt",
    "ratio",
    "part_figures",
    "_median",
    "seconds_by_round",
)


@dataclass(repr=False)
class _Frozen(Comparison):
    """Cache the figures of a comparison that nothing is added to."""

    def __post_init__(self) -> None:
        for name in _CACHED:
            setattr(self, name, _once(getattr(self, name)))

    def frozen(self) -> Comparison:
        return self


def _once(method: Callable[..., Any]) -> Callable[..., Any]:
    """Cache what a method returns for each cell (by identity: a cell is not hashable)."""
    cached: dict[tuple[Any, ...], Any] = {}

    def once(result: Any, *arguments: Any) -> Any:
        key = (id(result) if isinstance(result, CellResult) else result, *arguments)
        if key not in cached:
            cached[key] = method(result, *arguments)
        return cached[key]

    return once


def load(path: str | os.PathLike[str]) -> Comparison:
    """Return the Comparison of a file, which gzip may have packed, or of a page; ResultsError where
    it does not hold one.
    """
    return decode(file.read(path), path)


def decode(raw: bytes, name: object) -> Comparison:
    """Return the Comparison of a file's content. name: of the file, for the error of `load`."""
    try:
        return _decode(_from_page(file.unpacked(raw)))
    except UNREADABLE as error:
        reason = printable(str(error))
        raise ResultsError(f"{name} is not a crossbench results file: {reason}") from None


def _from_page(raw: bytes) -> bytes:
    """Return the results that a page holds, or the content itself where it is no page."""
    if not raw.startswith(b"<!DOCTYPE html>"):
        return raw
    found = PAGE_RESULTS.findall(raw)
    if len(found) != 1:
        raise ValueError(f"the page holds {len(found)} runs: name the results file of one")
    return found[0]


def _decode(raw: bytes) -> Comparison:
    """Return the comparison; raise one of UNREADABLE where the content is none."""
    schema = msgspec.json.decode(raw, type=_Schema).schema
    if schema == SCHEMA - 1:
        pattern = rb'"(%s)"(?=\s*:)' % b"|".join(RENAMED)
        raw = re.sub(pattern, lambda found: b'"%s"' % RENAMED[found[1]], raw)
    elif schema != SCHEMA:
        raise msgspec.ValidationError(
            f"it has schema {schema}, this crossbench reads {SCHEMA - 1} and {SCHEMA}: use its own "
            "version"
        )
    comparison = msgspec.json.decode(raw, type=Comparison)
    comparison.schema = SCHEMA
    check(comparison)
    return comparison


class _Schema(msgspec.Struct):
    schema: int
