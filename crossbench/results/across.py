"""Several comparisons, of other days, versions or machines, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ResultsError
from .comparison import Comparison
from .records import CellResult
from .statistics import Estimate, unpaired_ratio


@dataclass(frozen=True)
class Change:
    """A cell in a comparison against the same cell in another, the base.

    seconds: of a steady epoch, times the base's; the two runs have no rounds in common.
    against_others: the same after dividing by what the cell's own base took in either run, the
        median of ratios paired by round: what is left when the whole machine was slower.
    problem: why there is neither.
    """

    name: str
    seconds: Estimate | None = None
    against_others: float | None = None
    problem: str | None = None

    @property
    def verdict(self) -> str:
        if self.seconds is None:
            return f"not compared: {self.problem}"
        if self.seconds.low is None:
            return "too few rounds to tell"
        if not self.seconds.excludes(1):
            return "no difference shown"
        return "slower" if self.seconds.median > 1 else "faster"

    def fails(self, above: float) -> bool:
        """Whether it is slower than allowed, or nobody can tell. above: 0.1 for 10 %."""
        if self.seconds is None or self.seconds.low is None:
            return True
        return self.verdict == "slower" and self.seconds.median > 1 + above


def changes(base: Comparison, other: Comparison) -> list[Change]:
    """For each cell that was to run in the base."""
    base, other = base.frozen(), other.frozen()
    there = {_place(result): result for result in other.results}
    return [
        _change(base, result, other, there.get(_place(result)))
        for result in base.results
        if result.cell.named or result.status != "unavailable"
    ]


def check_same_work(comparisons: list[Comparison]) -> None:
    """ResultsError where they did not do the same work."""
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
                raise ResultsError(
                    f"the runs of {first.created} and {other.created} cannot be compared: "
                    f"another {what}"
                )


def _place(result: CellResult) -> tuple[str, str, int]:
    return result.cell.framework, result.cell.device, result.cell.threads


def _change(
    base: Comparison, before: CellResult, other: Comparison, after: CellResult | None
) -> Change:
    if after is None:
        return Change(before.name, problem="only the first file has it")
    for comparison, result in ((base, before), (other, after)):
        if not comparison.counts(result):
            doubt = comparison.doubt(result) if result.parity else None
            reason = result.reason or doubt or "no finished round"
            return Change(before.name, problem=f"{reason}, in the run of {comparison.created}")
    ratio = unpaired_ratio(other.seconds(after), base.seconds(before))
    a, b = base.ratio(before), other.ratio(after)
    own = a and b and base.base(before) is not before and other.base(after) is not after
    relative = b.median / a.median if own and a and b else None
    return Change(before.name, ratio, relative)
