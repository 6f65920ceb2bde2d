"""Draw what a reader needs first: the deciding columns, who is fastest, parity and the warnings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..inputs.names import IDIOMATIC
from ..inputs.printable import printable
from ..results.comparison import Comparison
from ..results.records import FLOAT64_BOUND, TRAIN, CellResult, Group, Task, worst
from ..results.rows import Row, rows
from ..results.several_runs import mean_ratios
from ..results.statistics import MIN_ROUNDS, PRECISION, Estimate
from .formatting import (
    MAX_CELL_CHARACTERS,
    count,
    integer,
    joined,
    milliseconds,
    number,
    percent,
    with_interval,
)
from .remarks import Problem, problems

MAX_SENTENCE_CHARACTERS = 1_000
"""Characters of a sentence; real ones have some hundred."""
MAX_NAMED = 5
"""Rows that a sentence names: the slower ones, those that were proved, those with one problem."""
TEXT_COLUMNS = ("task", "framework", "variant", "device")
LATENCY, LATENCY_P99 = "latency\nms", "99 % in\nms"
"""Headers of the median and the 99th percentile of the seconds that predicting a batch takes."""
Alignment = Literal["left", "right"]


@dataclass(frozen=True)
class Summary:
    """Hold the parts of the summary, without their layout.

    columns: headers; a line break in one is a space where the output has no room for two lines.
    """

    heading: list[str]
    columns: list[str]
    deciding: int
    """How many of the columns, from the first, decide."""
    rows: list[list[str]]
    fastest: list[bool]
    """For each row, whether it is the fastest of its group."""
    verdicts: list[str]
    """Who is fastest, in a sentence for each device, number of threads and task."""
    parity: str
    warnings: list[str]

    @property
    def alignment(self) -> list[Alignment]:
        """Return the alignment of each column."""
        return ["left" if name in TEXT_COLUMNS else "right" for name in self.columns]


def summarize(comparison: Comparison, running: bool = False) -> Summary:
    """Return the parts of the comparison's summary.

    running: whether the run goes on, so that cells that are not finished were not interrupted.
    """
    comparison = comparison.frozen()
    found = rows(comparison)
    groups = [(row.device, row.threads, row.task, row.batch_size) for row in found]
    names = ("device", "threads", "task", "batch")
    hidden = {
        name
        for name, values in zip(names, zip(*groups, strict=True), strict=False)
        if len(set(values)) == 1
    }
    if all(row.variant == IDIOMATIC for row in found):
        hidden.add("variant")
    if all(row.idiomatic_ratio is None for row in found):
        hidden.add("× idiomatic")
    if all(row.task == TRAIN for row in found):
        hidden |= {LATENCY, LATENCY_P99}
    if not has_accuracy(comparison) and all(row.test_accuracy is None for row in found):
        hidden.add("accuracy")
    cells = [{k: v for k, v in _cells(row).items() if k not in hidden} for row in found]
    base = comparison.settings.baseline or "fastest"
    ratio = printable(f"× {base}", MAX_CELL_CHARACTERS)
    columns = [ratio if name == "ratio" else name for name in (cells[0] if cells else {})]
    return Summary(
        heading=_clean(_heading(comparison, running)),
        columns=columns,
        deciding=columns.index(ratio) + 1 if columns else 0,
        rows=[[printable(cell, MAX_CELL_CHARACTERS) for cell in row.values()] for row in cells],
        fastest=[
            row.ranked and group not in groups[:index]
            for index, (row, group) in enumerate(zip(found, groups, strict=True))
        ],
        verdicts=_clean(verdicts(comparison)),
        parity=printable(_parity(comparison), MAX_SENTENCE_CHARACTERS),
        warnings=_warnings(comparison, running),
    )


def has_accuracy(comparison: Comparison) -> bool:
    """Return whether the model has an accuracy: one class for an example."""
    model = comparison.model
    return model["classes"] is not None and len(model["output_shape"]) < 2


def _cells(row: Row) -> dict[str, str]:
    """Return the texts of the deciding columns, by header."""
    memory = row.peak_memory_bytes
    first = row.first_epoch_seconds
    return {
        "task": row.task,
        "batch": f"{row.batch_size:,}",
        "framework": row.title,
        "variant": row.variant,
        "device": row.device,
        "threads": str(row.threads),
        "steady epoch s": with_interval(row.steady_epoch_seconds),
        "ratio": with_interval(row.ratio),
        "× idiomatic": with_interval(row.idiomatic_ratio),
        "examples\nper s": number(row.examples_per_second),
        LATENCY: milliseconds(row.latency_seconds),
        LATENCY_P99: milliseconds(row.latency_p99_seconds),
        "first\nepoch s": number(first.median if first else None),
        "cores\nused": number(row.cores),
        "peak\nMiB": integer(memory and memory / 2**20),
        "accuracy": percent(row.test_accuracy),
    }


def _heading(comparison: Comparison, running: bool) -> list[str]:
    model, data, machine = comparison.model, comparison.data, comparison.machine
    rounds = max((row.rounds for row in rows(comparison)), default=0)
    on_gpu = any(r.cell.on_gpu for r in comparison.results)
    gpus = f", {gpu_names(comparison)}" if on_gpu else ""
    threads = sorted({r.cell.threads for r in comparison.results})
    with_threads = f"{joined(threads)} {'thread' if threads == [1] else 'threads'}"
    return [
        f"{model['name']} on {data.name}: {model['parameters']:,} parameters, "
        f"{epoch_words(comparison)}, {model['optimizer']['type']}, float32; "
        f"{machine.name}, {count(machine.cpus, 'CPU')}{gpus}; "
        f"{with_threads}{allocator_words(comparison)}; "
        f"{count(rounds, 'interleaved round')}{_why_ended(comparison, running)}: "
        f"{_what_is_shown(rounds)}.{_parts(comparison)}{_what_is_predicted(comparison)}"
    ]


def allocator_words(comparison: Comparison) -> str:
    """Return the environment's settings of memory allocation, to be put after other words."""
    settings = comparison.machine.allocator_settings.items()
    return "".join(f"; {name}={value}" for name, value in settings)


def epoch_words(comparison: Comparison) -> str:
    """Return what an epoch is: "an epoch of 50 batches of 1,000"."""
    data, sizes = comparison.data, sorted({r.cell.batch_size for r in comparison.results})
    batches = [data.batches(size) for size in sizes]
    if len(sizes) == 1:
        return f"an epoch of {count(batches[0], 'batch', 'batches')} of {sizes[0]:,}"
    listed = joined(f"{size:,}" for size in sizes)
    if len(set(batches)) == 1:
        return f"epochs of {count(batches[0], 'batch', 'batches')} of {listed}"
    examples = data.most_examples or data.train_examples
    if data.most_batches is None:
        return f"epochs of {examples:,} examples in batches of {listed}"
    return f"epochs of {joined(f'{b:,}' for b in batches)} batches of {listed}"


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


def _parts(comparison: Comparison) -> str:
    """Return a sentence on the rounds whose epochs took the first batches only, or nothing."""
    whole, parts = set[int](), dict[int, set[int]]()
    for result in comparison.results:
        for epoch in result.epochs:
            if comparison.is_whole(result, epoch):
                whole.add(epoch.round)
            else:
                parts.setdefault(epoch.round, set()).add(epoch.steps)
    if not parts:
        return ""
    steps = sorted(set().union(*parts.values()))
    some = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    rest = "in the others" if whole else "In each round"
    start = f"In {count(len(whole), 'round')} the epochs are whole, " if whole else ""
    return f" {start}{rest} they take the first {some} batches."


def _what_is_predicted(comparison: Comparison) -> str:
    if all(r.cell.task == TRAIN for r in comparison.results):
        return ""
    return " To predict is to compute the logits of each batch, from the initial weights."


def _clean(sentences: Iterable[str]) -> list[str]:
    """Make each sentence fit one line: names and reasons may hold any characters."""
    return [printable(sentence, MAX_SENTENCE_CHARACTERS) for sentence in sentences]


def row_name(comparison: Comparison, result: CellResult) -> str:
    """Return a row's name for a reader: the framework, and of the device, the number of threads,
    the task and the batch size what rows differ in; else the cell's own name if rows share that.
    """
    found = name_with(comparison, result, *Group._fields)
    names = [name_with(comparison, other, *Group._fields) for other in comparison.results]
    return found if names.count(found) == 1 else result.name


def name_with(comparison: Comparison, result: CellResult, *fields: str) -> str:
    """Return the framework and those of the fields of a Group that cells differ in."""
    cell = result.cell
    words = {
        "device": cell.device,
        "threads": count(cell.threads, "thread"),
        "task": cell.task,
        "batch_size": f"batches of {cell.batch_size:,}",
    }
    differing = [
        field for field in fields if len({getattr(r.cell, field) for r in comparison.results}) > 1
    ]
    return ", ".join([cell.label, *(words[field] for field in differing)])


def gpu_names(comparison: Comparison) -> str:
    """Return the GPUs' names; if there are several, of the measured ones with their index."""
    names = comparison.machine.gpus
    used = sorted({r.cell.gpu_index for r in comparison.results if r.cell.on_gpu})
    if not names:
        return comparison.machine.gpu_problem or "no GPU"
    if len(names) == 1 or not used:
        return ", ".join(names)
    measured = ", ".join(f"gpu:{i} {names[i]}" for i in used if i < len(names))
    return f"{measured or 'none'} of {len(names)} GPUs"


def _what_is_shown(rounds: int) -> str:
    return "median (95 % interval)" if rounds >= MIN_ROUNDS else "median [range]"


def verdicts(comparison: Comparison) -> list[str]:
    """Say who is fastest in each task on each device with each number of threads.

    With several batch sizes the sentence is on all of them.
    """
    groups = comparison.groups
    several_threads = len({group.threads for group in groups}) > 1
    several_tasks = len({group.task for group in groups}) > 1
    sentences = []
    for place in dict.fromkeys((group.device, group.threads, group.task) for group in groups):
        device, threads, task = place
        where = _place(device)
        if several_threads:
            where += f" with {count(threads, 'thread')}"
        if several_tasks:
            where = f"to {task} {where}"
        of_place = sorted(group for group in groups if group[:3] == place)
        ranked = {group.batch_size: comparison.ranked(group) for group in of_place}
        ranked = {size: cells for size, cells in ranked.items() if len(cells) > 1}
        if len(of_place) > 1 and ranked:
            sentences.append(_verdict_by_size(comparison, ranked, where))
            sentences += _means(comparison, place)
        elif ranked:
            sentences += [_verdict(comparison, cells, where) for cells in ranked.values()]
    for result in comparison.results:
        if speedup := comparison.gpu_speedup(result):
            sentences.append(
                f"{name_with(comparison, result, 'task', 'batch_size')} is {_times(speedup)} as "
                f"fast {_place(result.cell.device)} as on the CPU."
            )
    return sentences


def _means(comparison: Comparison, place: tuple[str, int, Task]) -> list[str]:
    """Return the sentence on the geometric means of the ratios over the batch sizes of a place."""
    fastest = Counter(
        ranked[0].cell.implementation
        for group in comparison.groups
        if group[:3] == place and (ranked := comparison.ranked(group))
    )
    ((base, _),) = fastest.most_common(1)
    means = [m for m in mean_ratios([comparison], base) if (m.device, m.threads, m.task) == place]
    if not means:
        return []
    each = [f"{m.name} takes {_times(m.ratio)} (over {len(m.over)})" for m in means]
    return [f"The geometric means over batch sizes: of {means[0].base}'s seconds {joined(each)}."]


def _verdict_by_size(
    comparison: Comparison, ranked: dict[int, list[CellResult]], where: str
) -> str:
    """Return the sentence on who is fastest from which batch size on.

    ranked: by batch size, ascending, two or more cells, the fastest first.
    """
    place, parts, before = f"{where[0].upper()}{where[1:]}", list[str](), None
    names = dict.fromkeys(cells[0].cell.label for cells in ranked.values())
    if len(names) == 1:
        return f"{place}, {next(iter(names))} is fastest with every batch size."
    for size, (fastest, second, *_) in ranked.items():
        if before == fastest.cell.implementation:
            continue
        others = {cell.cell.implementation: cell for cell in ranked[size]}
        other = others.get(before or "", second)
        ratio = comparison.paired(other, fastest)
        name = fastest.cell.label
        words = (
            f"{name} from {size:,} on" if parts else f"{name} is fastest with batches of {size:,}"
        )
        if ratio:
            unsure = "" if ratio.is_over(1) else ", not a significant difference"
            words += f" ({_times(ratio)} as fast as {other.cell.label}{unsure})"
        parts.append(words)
        before = fastest.cell.implementation
    return f"{place}, {joined(parts)}."


def _place(device: str) -> str:
    return {"cpu": "on the CPU", "gpu": "on the GPU"}.get(device, f"on {device}")


def _verdict(comparison: Comparison, ranked: list[CellResult], place: str) -> str:
    """Return the sentence on one group of cells, the fastest first."""
    fastest, *others = ranked
    ratios = [(r.cell.label, comparison.paired(r, fastest)) for r in others]
    known = [(title, ratio) for title, ratio in ratios if ratio]
    slower = [(title, ratio) for title, ratio in known if ratio.is_over(1)]
    equal = [(title, ratio) for title, ratio in known if not ratio.is_over(1)]
    words = f"{fastest.cell.label} is fastest {place}"
    if equal:
        words = f"{joined([fastest.cell.label, *(t for t, _ in equal)])} are fastest {place}"
        pairs = joined([f"{t} {_times(r)}" for t, r in equal])
        words += f", without a significant difference ({pairs})"
    if slower:
        (title, ratio), *more = slower[:MAX_NAMED]
        who = fastest.cell.label if equal else ""
        parts = [f"{_times(ratio)} as fast as {title}", *(f"{_times(r)} as {t}" for t, r in more)]
        words += f"; {who} is " if who else ": "
        words += ", ".join(parts)
        if len(slower) > MAX_NAMED:
            words += f"; {len(slower) - MAX_NAMED} more are slower"
    few = any(r.low is None for _, r in known)
    return words + (f" ([range]: {MIN_ROUNDS} rounds give an interval)." if few else ".")


def _times(ratio: Estimate) -> str:
    median, _, interval = with_interval(ratio).partition(" ")
    return f"{median}× {interval}".strip()


def _parity(comparison: Comparison) -> str:
    """Return the line on the rows that were proved, and that no check of the timed run doubts."""
    results = comparison.results
    proved = [r for r in results if r.parity and comparison.doubt(r) is None]
    if not proved:
        return ""
    largest = max(worst(r.parity.float64)[1] or 0.0 for r in proved if r.parity)
    who = joined([row_name(comparison, r) for r in proved])
    if len(proved) > MAX_NAMED:
        who = f"{len(proved)} of the {len(results)} rows"
    if len(proved) == len(results) > 1:
        who = "All rows"
    verb = "do" if len(proved) > 1 else "does"
    return (
        f"{who} {verb} the same work as the NumPy reference: in float64 the largest deviation is "
        f"{largest:.0e} ({FLOAT64_BOUND:.0e} is allowed).{_left_out(comparison)}"
    )


def _left_out(comparison: Comparison) -> str:
    """Return a sentence on what the proof has less of than the model, or nothing."""
    words = comparison.reference.left_out if comparison.reference else []
    return f" The proof has {joined(words)}." if words else ""


def _warnings(comparison: Comparison, running: bool) -> list[str]:
    """Return a sentence on each problem of the data and of the rows; one for a problem of many, and
    what to do about it once.
    """
    lines = [f"The data: {comparison.data.note}"] if comparison.data.note else []
    pending = [row_name(comparison, r) for r in comparison.results if r.status == "pending"]
    if pending and not running:
        lines.append(f"{joined(pending)}: interrupted before the last round")
    alike: dict[str, list[tuple[str, Problem]]] = {}
    for result in comparison.results:
        for problem in problems(comparison, result):
            found = (row_name(comparison, result), problem)
            alike.setdefault(re.sub(r"\d[\d.,]*", "", problem.text), []).append(found)
    for (name, first), *others in alike.values():
        if len(others) >= MAX_NAMED:
            lines.append(f"{1 + len(others)} rows ({name} is the first): {first.text}")
        else:
            lines.append(f"{name}: {first.text}")
            lines += [f"{other}: {problem.fact}" for other, problem in others]
    return [f"{line.rstrip('.')}." for line in _clean(lines)]
