"""Rank the cells that did the same work, and compute the ratios of their seconds."""

from __future__ import annotations

from ..inputs.names import IDIOMATIC
from . import agreement, doubts
from .cells import CellResult, Group
from .figures import Figures, once
from .statistics import PRECISION, Estimate, estimate, round_ratios


class Ranking(Figures):
    """Compare the cells of each group."""

    @once
    def is_ranked(self, result: CellResult) -> bool:
        """Return whether the cell's figures may be compared.

        It must have done the same work, not have failed, and have a finished round. An interrupted
        cell is ranked by the rounds that it has.
        """
        runs = result.status in ("ran", "pending") and bool(self.seconds(result))
        return runs and self.doubt(result) is None

    @once
    def doubt(self, result: CellResult) -> str | None:
        """Return why the figures of a cell that ran are not ranked, in a line, or None."""
        return self.own_doubt(result) or agreement.differing_from_others(self, result)

    def own_doubt(self, result: CellResult) -> str | None:
        """Return the same, without comparing what the cell computed to that of others."""
        return doubts.own_doubt(self, result)

    @once
    def ranked(self, group: Group) -> list[CellResult]:
        """Return the ranked cells of a group, the fastest first."""
        cells = [r for r in self.results if r.cell.group == group and self.is_ranked(r)]
        return sorted(cells, key=self._median)

    def base(self, result: CellResult) -> CellResult | None:
        """Return the cell that a cell is compared with: the baseline, or the fastest, of its group.
        None where the cell itself, or the baseline, is not ranked.
        """
        if not self.is_ranked(result):
            return None
        ranked = self.ranked(result.cell.group)
        baseline = self.settings.baseline
        return next((r for r in ranked if baseline in (None, r.cell.implementation)), None)

    @once
    def ratio(self, result: CellResult) -> Estimate | None:
        """Return the ratio of the cell's seconds to its base's, paired by round.

        None without a base or a common round.
        """
        base = self.base(result)
        return self.paired(result, base) if base else None

    @once
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

    def gpu_speedup(self, result: CellResult) -> Estimate | None:
        """Return how many times faster a GPU cell is than its framework's CPU cell with the most
        threads, paired by round.
        """
        if not result.cell.on_gpu or not self.is_ranked(result):
            return None
        cpu = self._thread_cells(result)
        return self.paired(cpu[-1], result) if cpu else None

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

    def paired(self, numerator: CellResult, denominator: CellResult) -> Estimate | None:
        """Return the ratio of two cells' seconds, paired by round; None if one is not ranked."""
        ratios = self.round_ratios(numerator, denominator)
        return estimate(list(ratios.values())) if ratios else None

    def round_ratios(self, numerator: CellResult, denominator: CellResult) -> dict[int, float]:
        """Return the ratio of two cells' seconds by common round; empty if one is not ranked."""
        if not (self.is_ranked(numerator) and self.is_ranked(denominator)):
            return {}
        return round_ratios(self.seconds_by_round(numerator), self.seconds_by_round(denominator))

    @property
    def decided(self) -> bool:
        """Return whether every ratio's interval is as narrow as asked for.

        Where no precision was asked for, it may also lie clearly on one side of 1. For a cell
        without another to compare with, the interval is that of its seconds.
        """
        comparison = self.frozen()
        return all(comparison._is_decided(result) for result in self.results)

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

    @property
    def complete(self) -> bool:
        """Return whether every cell that the user named ran, and nothing failed or disagreed."""
        return all(
            (r.status == "ran" and self.is_ranked(r) and r.extra_problem is None)
            or (r.status == "unavailable" and not r.cell.named)
            for r in self.results
        )
