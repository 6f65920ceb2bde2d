"""Choose how many steps the epochs of a round take.

In one round the first epoch takes all batches: the first epoch of the published posts, the
accuracy, and how much a whole epoch changes the weights. All others take the first batches, which
tell as much, in less time; where several steady epochs go on from one another, those of that round
are whole too.
"""

from __future__ import annotations

import math

from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.epochs import TRAIN
from ..results.settings import Settings
from .evidence import MAX_STEPS
from .timing import runtime_seconds

WHOLE_ROUND = 2
"""The round with the whole epoch, if there are several: the first one gives a figure soon."""
LEAST_FLOPS = 1e10
"""FLOPs that the steps of an epoch take in the first round on a CPU, at least: some tenths of a
second, beside which the start and the end of an epoch are small."""
PARAMETER_FLOPS = 100
"""FLOPs that a CPU computes in the time in which a step reads a parameter and writes it anew, or
more: of an embedding with millions of rows a step computes next to nothing, and updates all."""
DIFFERENT_LENGTHS = 3
"""Numbers of steps that rounds take in turn where a runtime tells seconds of its own. Its garbage
collections may keep step with epochs of one length: in the LeNet each epoch of four batches in
Lux.jl held 0.35 s of them, those of three, five and six 0.04 to 0.07 s."""
PART_SECONDS = 1.0
"""Seconds of an epoch that is not whole, on average over the cells that are compared."""


def first_steps(comparison: Comparison, result: CellResult, number: int) -> int:
    """Return how many steps the first epoch of the cell takes in a round."""
    if number == whole_round(comparison.settings):
        return comparison.batches(result)
    return steady_steps(comparison, result, number)


def steady_steps(comparison: Comparison, result: CellResult, number: int) -> int:
    """Return how many steps its steady epochs take there: as many as those of its group."""
    batches, settings = comparison.batches(result), comparison.settings
    is_whole = number == whole_round(settings)
    if is_whole and (settings.epochs > 1 or number == 1):
        return batches
    if number == 1:
        least = math.ceil(LEAST_FLOPS / step_flops(comparison, result))
        return batches if result.cell.on_gpu else min(batches, max(MAX_STEPS, least))
    known = [
        (comparison.per_epoch(other, epoch), epoch)
        for other in comparison.results
        if other.cell.group == result.cell.group
        for epoch in other.steady
        if epoch.round == 1
    ]
    if not known:
        return batches
    share = PART_SECONDS * len(known) / sum(seconds for seconds, _ in known)
    more = number % DIFFERENT_LENGTHS if any(runtime_seconds(epoch) for _, epoch in known) else 0
    return min(batches, max(MAX_STEPS, math.ceil(share * batches)) + more)


def whole_round(settings: Settings) -> int:
    """Return the number of the round whose first epoch is whole."""
    return min(WHOLE_ROUND, settings.rounds or WHOLE_ROUND)


def step_flops(comparison: Comparison, result: CellResult) -> int:
    """Return the FLOPs of a step, or those that the update of its parameters stands for."""
    model, size = comparison.model, result.cell.batch_size
    if result.cell.task != TRAIN:
        return max(1, model["forward_flops"] * size)
    return max(1, model["training_flops"] * size, PARAMETER_FLOPS * model["trained_parameters"])
