"""Say how timed epochs compare with the same steps in calls of a few batches."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.cells import CellResult
from ..results.epochs import TRAIN


def replay_sentence(results: Sequence[CellResult]) -> str:
    """Return what was run again of the rows' timed epochs, and how far it was; "" for none."""
    replays = [replay for result in results for replay in result.replays]
    if not replays or not all(result.replays for result in results):
        return ""
    trains = any(result.cell.task == TRAIN for result in results)
    largest = max(replay.deviation for replay in replays)
    weights = max(replay.weights_deviation or 0.0 for replay in replays)
    what, and_weights = ("losses", " and weights") if trains else ("logits", "")
    if largest == weights == 0:
        found = f"the same {what}{and_weights}"
    else:
        found = f"{what} within {largest:.0e}"
        found += f" and changes of the weights within {weights:.0e}" if trains else ""
    number = (
        "One timed epoch, drawn by chance, was"
        if len(replays) == 1
        else f"{len(replays)} timed epochs, drawn by chance, were"
    )
    return f"{number} run again in calls of a few batches, with {found}{_part(results)}."


def _part(results: Sequence[CellResult]) -> str:
    """Return how many steps of the long epochs were run again; "" where all were."""
    shares = [
        (replay.steps, epoch.steps)
        for result in results
        for replay in result.replays
        for epoch in result.epochs
        if (epoch.round, epoch.epoch) == (replay.round, replay.epoch) and replay.steps < epoch.steps
    ]
    if not shares:
        return ""
    (least, _), (most, steps) = min(shares), max(shares)
    numbers = f"{least}" if least == most else f"{least} to {most}"
    return f"; of long epochs the first {numbers} of {steps} steps"
