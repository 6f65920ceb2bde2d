"""Draw what a reader needs first: the deciding columns, who is fastest, parity and the warnings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..implementation import IDIOMATIC
from ..printable import printable
from ..results.comparison import Comparison
from ..results.records import FLOAT64_BOUND, Cell, CellResult, worst
from ..results.rows import Row, rows
from ..results.statistics import MIN_ROUNDS, Estimate
from .formatting import (
    MAX_CELL_CHARACTERS,
    count,
    integer,
    joined,
    number,
    percent,
    with_interval,
)
from .remarks import problems

MAX_SENTENCE_CHARACTERS = 1_000
"""Characters of a sentence; real ones have some hundred."""
MAX_NAMED = 5
"""Slower rows that the sentence on the fastest names."""
TEXT_COLUMNS = ("framework", "variant", "device")
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
    """For each row, whether it is the fastest of its device and threads."""
    verdicts: list[str]
    """Who is fastest, in a sentence for each device and number of threads."""
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
    groups = [(row.device, row.threads) for row in found]
    hidden = {
        name
        for name, values in zip(("device", "threads"), zip(*groups, strict=True), strict=False)
        if len(set(values)) == 1
    }
    if all(row.variant == IDIOMATIC for row in found):
        hidden.add("variant")
    if all(row.idiomatic_ratio is None for row in found):
        hidden.add("× idiomatic")
    if predicts_numbers(comparison) and all(row.test_accuracy is None for row in found):
        hidden.add("accuracy")
    cells = [{k: v for k, v in _cells(row).items() if k not in hidden} for row in found]
    base = comparison.settings.baseline or "fastest"
    ratio = printable(f"× {base}", MAX_CELL_CHARACTERS)
    columns = [ratio if name == "ratio" else name for name in (cells[0] if cells else {})]
    return Summary(
        heading=_clean(_heading(comparison)),
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


def predicts_numbers(comparison: Comparison) -> bool:
    """Return whether the model has no classes, so that there is no accuracy."""
    return "classes" in comparison.model and comparison.model["classes"] is None


def _cells(row: Row) -> dict[str, str]:
    """Return the texts of the deciding columns, by header."""
    memory = row.peak_memory_bytes
    first = row.first_epoch_seconds
    return {
        "framework": row.title,
        "variant": row.variant,
        "device": row.device,
        "threads": str(row.threads),
        "steady epoch s": with_interval(row.steady_epoch_seconds),
        "ratio": with_interval(row.ratio),
        "× idiomatic": with_interval(row.idiomatic_ratio),
        "examples\nper s": number(row.examples_per_second),
        "first\nepoch s": number(first.median if first else None),
        "cores\nused": number(row.cores),
        "peak\nMiB": integer(memory and memory / 2**20),
        "accuracy": percent(row.test_accuracy),
    }


def _heading(comparison: Comparison) -> list[str]:
    model, data, machine = comparison.model, comparison.data, comparison.machine
    rounds = max((row.rounds for row in rows(comparison)), default=0)
    on_gpu = any(r.cell.on_gpu for r in comparison.results)
    gpus = f", {gpu_names(comparison)}" if on_gpu else ""
    threads = sorted({r.cell.threads for r in comparison.results})
    return [
        f"{model['name']} on {data.name}: {model['parameters']:,} parameters, an epoch of "
        f"{count(data.batches, 'batch', 'batches')} of {data.batch_size:,}, "
        f"{model['optimizer']['type']}, float32; "
        f"{machine.name}, {count(machine.cpus, 'CPU')}{gpus}; "
        f"{joined(threads)} {'thread' if threads == [1] else 'threads'}; "
        f"{count(rounds, 'interleaved round')}: {_what_is_shown(rounds)}."
    ]


def _clean(sentences: Iterable[str]) -> list[str]:
    """Make each sentence fit one line: names and reasons may hold any characters."""
    return [printable(sentence, MAX_SENTENCE_CHARACTERS) for sentence in sentences]


def row_name(comparison: Comparison, result: CellResult) -> str:
    """Return a row's name for a reader: the framework, and the device and the number of threads
    where rows differ in them; the cell's own name where that is not enough to tell it.
    """
    cells = [r.cell for r in comparison.results]
    several_devices = len({cell.device for cell in cells}) > 1
    several_threads = len({cell.threads for cell in cells}) > 1

    def name(cell: Cell) -> str:
        parts = [cell.label]
        if several_devices:
            parts.append(cell.device)
        if several_threads:
            parts.append(count(cell.threads, "thread"))
        return ", ".join(parts)

    found = name(result.cell)
    return found if [name(cell) for cell in cells].count(found) == 1 else result.name


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
    """Say who is fastest on each device with each number of threads."""
    cells = comparison.results
    groups = list(dict.fromkeys((r.cell.device, r.cell.threads) for r in cells))
    several = len({threads for _, threads in groups}) > 1
    sentences = []
    for device, threads in groups:
        place = _place(device) + (f" with {count(threads, 'thread')}" if several else "")
        ranked = comparison.ranked(device, threads)
        if len(ranked) > 1:
            sentences.append(_verdict(comparison, ranked, place))
    for result in cells:
        if speedup := comparison.gpu_speedup(result):
            sentences.append(
                f"{result.cell.label} is {_times(speedup)} as fast {_place(result.cell.device)} as "
                "on the CPU."
            )
    return sentences


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
    if len(proved) == len(results) > 1:
        who = "All rows"
    verb = "do" if len(proved) > 1 else "does"
    return (
        f"{who} {verb} the same work as the NumPy reference: in float64 the largest deviation is "
        f"{largest:.0e} ({FLOAT64_BOUND:.0e} is allowed)."
    )


def _warnings(comparison: Comparison, running: bool) -> list[str]:
    """Return a sentence on each problem of the data and of the rows."""
    lines = [f"The data: {comparison.data.note}"] if comparison.data.note else []
    pending = [row_name(comparison, r) for r in comparison.results if r.status == "pending"]
    if pending and not running:
        lines.append(f"{joined(pending)}: interrupted before the last round")
    for result in comparison.results:
        name = row_name(comparison, result)
        lines += [f"{name}: {line}" for line in problems(comparison, result)]
    return [f"{line.rstrip('.')}." for line in _clean(lines)]
