"""Describe the parts of a training step for a results file, and record their proofs there."""

from __future__ import annotations

from collections.abc import Sequence

from ..models.parts import LOSS, OPTIMIZER, Part, Work
from ..results import parts as records
from ..results.roofline import part_bytes
from .process import WorkerFailure


def described(parts: Sequence[Part]) -> list[records.Part]:
    """Return the parts as a results file has them."""
    return [_described(part) for part in parts]


def _described(part: Part) -> records.Part:
    if part.name in (LOSS, OPTIMIZER):
        return records.Part(part.name, part.count, 0, 0.0, 0.0)
    flops = [work.model.training_flops for work in part.works]
    moved = [part_bytes(work.model.description()) for work in part.works]
    return records.Part(
        part.name,
        part.count,
        flops[-1] - sum(flops[:-1]),
        *(values[-1] - sum(values[:-1]) for values in zip(*moved, strict=True)),
    )


def record_proofs(
    results: dict[str, records.PartResult],
    parts: Sequence[Part],
    proved: dict[Work, float | WorkerFailure | None],
) -> None:
    """Add to a cell's results how far each part's work is from the reference.

    What is not in `proved` is work of the whole model, which has a proof of its own.
    """
    for part in parts:
        found = results[part.name] = records.PartResult(0.0)
        for outcome in (proved[work] for work in part.works if work in proved):
            if isinstance(outcome, WorkerFailure):
                found.problem = str(outcome)
            elif outcome is None or found.deviation is None:
                found.deviation = None
            else:
                found.deviation = max(found.deviation, outcome)
