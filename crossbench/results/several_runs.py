"""Compare several comparisons: of other days, versions or machines."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ResultsError
from .comparison import Comparison
from .records import CellResult
from .statistics import Estimate, unpaired_ratio


@dataclass(frozen=True)
class Change:
    """Hold the change of a cell between two comparisons, the first of which is the base.

    seconds: ratio of a steady epoch's seconds to those in the base; the two runs have no rounds in
        common.
    relative_to_run: the same for the cell's ratio to the cell it is compared with in its own run
        (the median of the ratios paired by round), which does not change when the whole machine is
        slower.
    problem: why neither is known.
    """

    name: str
    seconds: Estimate | None = None
    relative_to_run: float | None = None
    problem: str | None = None

    @property
    def verdict(self) -> str:
        """Return the change in words."""
        if self.seconds is None:
            return f"not compared: {self.problem}"
        if self.seconds.low is None:
            return "too few rounds to tell"
        if not self.seconds.excludes(1):
            return "not significantly different"
        return "slower" if self.seconds.median > 1 else "faster"

    def fails(self, above: float) -> bool:
        """Return whether it is slower than allowed, or not known. above: 0.1 for 10 %."""
        if self.seconds is None or self.seconds.low is None:
            return True
        return self.verdict == "slower" and self.seconds.median > 1 + above


def changes(base: Comparison, other: Comparison) -> list[Change]:
    """Return the change of each cell that was to run in the base."""
    base, other = base.frozen(), other.frozen()
    cells = {_cell_key(result): result for result in other.results}
    return [
        _change(base, result, other, cells.get(_cell_key(result)))
        for result in base.results
        if result.cell.named or result.status != "unavailable"
    ]


def check_same_work(comparisons: list[Comparison]) -> None:
    """Raise ResultsError where the comparisons are not of the same work."""
    first = comparisons[0]
    for other in comparisons[1:]:
        for what, a, b in (
            ("model", first.model, other.model),
            ("data", first.data.sha256, other.data.sha256),
            ("batch size", first.data.batch_size, other.data.batch_size),
            ("number of batches", first.data.batches, other.data.batches),
            ("number of epochs in a round", first.settings.epochs, other.settings.epochs),
        ):
            if a != b:
                values = f" ({a} and {b})" if isinstance(a, int) else ""
                raise ResultsError(
                    f"the runs of {first.created} and {other.created} cannot be compared: "
                    f"the {what} differs{values}"
                )


def _cell_key(result: CellResult) -> tuple[str, str, int]:
    return result.cell.implementation, result.cell.device, result.cell.threads


def _change(
    base: Comparison, before: CellResult, other: Comparison, after: CellResult | None
) -> Change:
    if after is None:
        return Change(before.name, problem="only the first file has it")
    for comparison, result in ((base, before), (other, after)):
        if not comparison.is_ranked(result):
            doubt = comparison.doubt(result) if result.parity else None
            reason = result.reason or doubt or "no finished round"
            return Change(before.name, problem=f"{reason}, in the run of {comparison.created}")
    ratio = unpaired_ratio(other.seconds(after), base.seconds(before))
    a, b = base.ratio(before), other.ratio(after)
    own = a and b and base.base(before) is not before and other.base(after) is not after
    relative = b.median / a.median if own and a and b else None
    return Change(before.name, ratio, relative)
