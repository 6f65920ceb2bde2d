"""Say how timed epochs compare with the same steps in calls of a few batches."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.cells import CellResult
from ..results.epochs import TRAIN
from .formatting import joined


def replay_sentence(results: Sequence[CellResult]) -> str:
    """Return what was run again of the rows' timed epochs, and how far it was; "" for none."""
    replays = [replay for result in results for replay in result.replays]
    if not replays or not all(result.replays for result in results):
        return ""
    trained = [r for result in results if result.cell.task == TRAIN for r in result.replays]
    known = [d for replay in trained if (d := replay.weights_deviation) is not None]
    what, largest = "losses" if trained else "logits", max(r.deviation for r in replays)
    found = f"{what} within {largest:.0e}" if largest else f"the same {what}"
    if known:
        change = max(known)
        weights = f"weights within {change:.0e} of their change" if change else "the same weights"
        is_whole = len(known) == len(trained)
        found += " and " if is_whole else ", and, where all steps were run again, "
        found += "weights" if is_whole and largest == change == 0 else weights
    number = (
        "One timed epoch, drawn by chance, was"
        if len(replays) == 1
        else f"{len(replays)} timed epochs, drawn by chance, were"
    )
    return f"{number} run again in calls of a few batches, with {found}{_part(results)}."


def _part(results: Sequence[CellResult]) -> str:
    """Return how many steps of the long epochs were run again, by their length; "" where all
    were.
    """
    taken: dict[int, set[int]] = {}
    for result in results:
        for replay in result.replays:
            for epoch in result.epochs:
                is_it = (epoch.round, epoch.epoch) == (replay.round, replay.epoch)
                if is_it and replay.steps < epoch.steps:
                    taken.setdefault(epoch.steps, set()).add(replay.steps)
    if not taken:
        return ""
    each = joined(f"{_from_to(numbers)} of {steps:,}" for steps, numbers in sorted(taken.items()))
    return f"; of long epochs the first {each} steps"


def _from_to(numbers: set[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
