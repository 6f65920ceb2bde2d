"""Say what was run: the heading of the summary, and what it shares with that of the details."""

from __future__ import annotations

from ..results.comparison import Comparison
from ..results.epochs import TRAIN
from ..results.statistics import MIN_ROUNDS, PRECISION
from .formatting import count, joined


def heading(comparison: Comparison, running: bool) -> str:
    """Return the heading of the summary; see `summarize`."""
    model, machine = comparison.model, comparison.machine
    rounds = max((len(comparison.seconds(r)) for r in comparison.results), default=0)
    on_gpu = any(r.cell.on_gpu for r in comparison.results)
    gpus = f", {gpu_words(comparison)}" if on_gpu else ""
    shown = "median (95 % interval)" if rounds >= MIN_ROUNDS else "median [range]"
    return (
        f"{model['name']} on {comparison.data.name}: {model['parameters']:,} parameters, "
        f"{epoch_words(comparison)}, {model['optimizer']['type']}, {compute_words(comparison)}; "
        f"{machine.name}, {count(machine.cpus, 'CPU')}{gpus}; "
        f"{thread_words(comparison)}{environment_words(comparison)}; "
        f"{count(rounds, 'interleaved round')}{_why_ended(comparison, running)}: {shown}."
        f"{_partial_epochs(comparison)}{_turns(comparison)}{_what_is_predicted(comparison)}"
    )


def epoch_words(comparison: Comparison) -> str:
    """Return what an epoch is: "an epoch of 50 batches of 1,000"."""
    data, sizes = comparison.data, sorted({r.cell.batch_size for r in comparison.results})
    batches = [data.batches(size) for size in sizes]
    if len(sizes) == 1:
        return f"an epoch of {count(batches[0], 'batch', 'batches')} of {sizes[0]:,}"
    listed = joined(f"{size:,}" for size in sizes)
    if len(set(batches)) == 1:
        return f"epochs of {count(batches[0], 'batch', 'batches')} of {listed}"
    examples = min(data.most_examples or data.train_examples, data.train_examples)
    if data.most_batches is None:
        return f"epochs of {examples:,} examples in batches of {listed}"
    return f"epochs of {joined(f'{b:,}' for b in batches)} batches of {listed}"


def gpu_words(comparison: Comparison) -> str:
    """Return the GPUs' names; if there are several, of the measured ones with their index."""
    names = comparison.machine.gpus
    used = sorted({r.cell.gpu_index for r in comparison.results if r.cell.on_gpu})
    if not names:
        return comparison.machine.gpu_problem or "no GPU"
    if len(names) == 1 or not used:
        return ", ".join(names)
    measured = ", ".join(f"gpu:{i} {names[i]}" for i in used if i < len(names))
    return f"{measured or 'none'} of {len(names)} GPUs"


def thread_words(comparison: Comparison) -> str:
    """Return the numbers of threads: "1 thread", "1 and 2 threads"."""
    numbers = sorted({r.cell.threads for r in comparison.results})
    return count(numbers[0], "thread") if len(numbers) == 1 else f"{joined(numbers)} threads"


def compute_words(comparison: Comparison) -> str:
    """Return the precisions of the rows: "float32", "float32 and bfloat16"."""
    return joined(dict.fromkeys(r.cell.compute for r in comparison.results))


def environment_words(comparison: Comparison) -> str:
    """Return what the user's environment sets, to be put after other words."""
    settings = comparison.machine.environment.items()
    return "".join(f"; {name}={value}" for name, value in settings)


def _why_ended(comparison: Comparison, running: bool) -> str:
    """Return why there were no more rounds, to be put after their number; nothing before the end.

    An interrupted run has its own warning.
    """
    settings, results = comparison.settings, comparison.results
    ended = not running and all(r.status != "pending" for r in results)
    if not ended or settings.rounds is not None or not any(r.epochs for r in results):
        return ""
    if not comparison.decided:
        return f", until {comparison.max_round_seconds:,.0f} s were over"
    are_compared = any(len(comparison.ranked(group)) > 1 for group in comparison.groups)
    if settings.precision is None and are_compared:
        return ", until each ratio was clear"
    return f", until each interval was within {100 * (settings.precision or PRECISION):g} %"


def _partial_epochs(comparison: Comparison) -> str:
    """Return a sentence on the rounds whose epochs took the first batches only, or nothing."""
    steps, whole, partial = set[int](), set[frozenset[tuple[int, int]]](), set[int]()
    for result in comparison.results:
        cut = [epoch for epoch in result.epochs if not comparison.is_whole(result, epoch)]
        steps |= {epoch.steps for epoch in cut}
        partial |= {epoch.round for epoch in cut}
        if result.epochs:
            whole.add(frozenset((e.round, e.epoch) for e in result.epochs if e not in cut))
    if not steps:
        return ""
    fewest, most = min(steps), max(steps)
    some = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    found = next(iter(whole))
    rounds, is_first = {number for number, _ in found}, not any(epoch for _, epoch in found)
    if len(whole) > 1 or (not is_first and rounds & partial):  # rows, or epochs, differ
        return f" Epochs that are not whole take the first {some} batches."
    if not found:
        return f" In each round they take the first {some} batches."
    number = count(len(rounds), "round")
    if is_first:
        return f" In {number} the first epoch is whole, all others take the first {some} batches."
    return f" In {number} the epochs are whole, in the others they take the first {some} batches."


def _turns(comparison: Comparison) -> str:
    """Return a sentence on rows that did not fit into memory beside one another, or nothing."""
    if comparison.most_turns == 1:
        return ""
    return (
        " Not all processes fit into memory: the rows of a round ran in up to "
        f"{comparison.most_turns} turns, drawn anew in each round."
    )


def _what_is_predicted(comparison: Comparison) -> str:
    if all(r.cell.task == TRAIN for r in comparison.results):
        return ""
    return " To predict is to compute the logits of each batch, from the initial weights."
