"""Choose how many steps the epochs of a round take.

In one round they take all batches: the first epoch of the published posts, the accuracy, and how
much a whole epoch changes the weights. In the others the first batches tell as much, in less time.
"""

from __future__ import annotations

import math

from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.epochs import TRAIN
from ..results.settings import Settings
from .evidence import MAX_STEPS

WHOLE_ROUND = 2
"""The round whose epochs are whole, if there are several: the first one gives a figure soon."""
LEAST_FLOPS = 3e10
"""FLOPs that the steps of an epoch take, at least: some tenths of a second on a CPU, beside which
the start and the end of an epoch are small."""
PART_SECONDS = 2.0
"""Seconds of an epoch that is not whole, on average over the cells that are compared."""


def round_steps(comparison: Comparison, result: CellResult, number: int) -> int:
    """Return how many steps the cell's epochs take in a round: as many as those of its group."""
    batches = comparison.batches(result)
    if number == whole_round(comparison.settings):
        return batches
    least = max(MAX_STEPS, math.ceil(LEAST_FLOPS / step_flops(comparison, result)))
    if number < WHOLE_ROUND:
        return batches if result.cell.on_gpu else min(batches, least)
    seconds = [
        epoch.wall_seconds
        for other in comparison.results
        if other.cell.group == result.cell.group
        for epoch in other.steady
        if epoch.round == WHOLE_ROUND
    ]
    if not seconds:
        return batches
    share = PART_SECONDS * len(seconds) / sum(seconds)
    return min(batches, max(least, math.ceil(share * batches)))


def whole_round(settings: Settings) -> int:
    """Return the number of the round whose epochs are whole."""
    return min(WHOLE_ROUND, settings.rounds or WHOLE_ROUND)


def step_flops(comparison: Comparison, result: CellResult) -> int:
    """Return the FLOPs of a step, at least one."""
    kind = "training_flops" if result.cell.task == TRAIN else "forward_flops"
    flops: int = comparison.model[kind]
    return max(1, flops * result.cell.batch_size)
