"""Draw what a reader needs first: the deciding columns, who is fastest, parity and the warnings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ..inputs.names import IDIOMATIC
from ..inputs.printable import printable
from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.epochs import TRAIN
from ..results.parity import FLOAT64_BOUND, worst
from ..results.rows import FIGURES, Row, rows
from .columns import SUMMARY, equal, headers, text
from .formatting import MAX_CELL_CHARACTERS, joined
from .headings import heading
from .layers import explanations, sums, warnings as part_warnings
from .remarks import Problem, problems
from .replays import replay_sentence
from .row_names import row_name
from .verdicts import MAX_NAMED, verdicts

MAX_SENTENCE_CHARACTERS = 1_000
"""Characters of a sentence; real ones have some hundred."""
Alignment = Literal["left", "right"]


@dataclass(frozen=True)
class Summary:
    """Hold the parts of the summary, without their layout.

    columns: headers; a line break in one is a space where the output has no room for two lines.
    """

    heading: str
    columns: list[str]
    alignment: list[Alignment]
    deciding: int
    """How many of the columns, from the first, decide."""
    rows: list[list[str]]
    fastest: list[bool]
    """For each row, whether it is the fastest of its group."""
    verdicts: list[str]
    """Who is fastest, in a sentence for each device, number of threads, precision and task, and
    which parts of the training step explain it."""
    parity: str
    warnings: list[str]


def summarize(comparison: Comparison, running: bool = False) -> Summary:
    """Return the parts of the comparison's summary.

    running: whether the run goes on, so that cells that are not finished were not interrupted.
    """
    comparison = comparison.frozen()
    found = rows(comparison)
    hidden = _hidden(comparison, found)
    shown = [name for name in SUMMARY if name not in hidden] if found else []
    headers_of = headers(comparison, shown, brief=True)
    groups = [(row.device, row.threads, row.compute, row.task, row.batch_size) for row in found]
    return Summary(
        heading=_one_line(heading(comparison, running)),
        columns=[headers_of[name] for name in shown],
        alignment=["left" if FIGURES[name].format == "text" else "right" for name in shown],
        deciding=shown.index("ratio") + 1 if shown else 0,
        rows=[
            [printable(text(row, name, brief=True), MAX_CELL_CHARACTERS) for name in shown]
            for row in found
        ],
        fastest=[
            row.ranked and group not in groups[:index]
            for index, (row, group) in enumerate(zip(found, groups, strict=True))
        ],
        verdicts=[
            _one_line(line)
            for sentences in (verdicts, explanations, sums)
            for line in sentences(comparison)
        ],
        parity=_one_line(_parity(comparison)),
        warnings=[f"{_one_line(line).rstrip('.')}." for line in _warnings(comparison, running)],
    )


def _hidden(comparison: Comparison, found: list[Row]) -> set[str]:
    """Return the names of the columns that say the same, or nothing, of every row."""
    model = comparison.model
    one_class_per_example = model["classes"] is not None and len(model["output_shape"]) < 2
    trains_alone = all(row.task == TRAIN for row in found)
    without = {
        "variant": all(row.variant == IDIOMATIC for row in found),
        "float32_ratio": all(row.float32_ratio is None for row in found),
        "test_loss": len({row.compute for row in found}) == 1,
        "idiomatic_ratio": all(row.idiomatic_ratio is None for row in found),
        "latency_seconds": trains_alone,
        "latency_p99_seconds": trains_alone,
        "test_accuracy": (
            not one_class_per_example and all(row.test_accuracy is None for row in found)
        ),
    }
    same = equal(found, "device", "threads", "compute", "task", "batch_size")
    return {*same, *(name for name, is_hidden in without.items() if is_hidden)}


def _one_line(sentence: str) -> str:
    """Make a sentence fit one line: names and reasons may hold any characters."""
    return printable(sentence, MAX_SENTENCE_CHARACTERS)


def _parity(comparison: Comparison) -> str:
    """Return the line on the rows that were proved, and that no check of the timed run doubts."""
    results, reference = comparison.results, comparison.reference
    proved = [r for r in results if r.parity and comparison.doubt(r) is None]
    if not proved:
        return ""
    largest = max(worst(r.parity.float64)[1] or 0.0 for r in proved if r.parity)
    if len(proved) == len(results) > 1:
        who = "All rows"
    elif len(proved) > MAX_NAMED:
        who = f"{len(proved)} of the {len(results)} rows"
    else:
        who = joined(row_name(comparison, r) for r in proved)
    verb = "do" if len(proved) > 1 else "does"
    again = replay_sentence(proved)
    left_out = reference.left_out if reference else []
    shortened = f" The proof has {joined(left_out)}." if left_out else ""
    return (
        f"{who} {verb} the same work as the NumPy reference: in float64 the largest deviation is "
        f"{largest:.0e} ({FLOAT64_BOUND:.0e} is allowed).{shortened}{_precision(proved)}"
        + (f" {again}" if again else "")
    )


def _precision(proved: list[CellResult]) -> str:
    """Return the sentences on how far the logits of other precisions than float32 are, or ""."""
    sentences = ""
    for compute in dict.fromkeys(r.cell.compute for r in proved):
        found = [r.precision for r in proved if r.precision and r.cell.compute == compute]
        if found:
            observed, expected = (
                max(each) for each in zip(*(p.logits for p in found), strict=True)
            )
            sentences += (
                f" In {compute} their logits are at most {observed:.1e} from those in float64; the "
                f"reference's with the same rounding are {expected:.1e}."
            )
    return sentences


def _warnings(comparison: Comparison, running: bool) -> list[str]:
    """Return a sentence on each problem of the data and of the rows; one for a problem of many, and
    what to do about it once.
    """
    lines = [f"The data: {comparison.data.note}"] if comparison.data.note else []
    lines += part_warnings(comparison)
    pending = [row_name(comparison, r) for r in comparison.results if r.status == "pending"]
    if pending and not running:
        lines.append(f"{joined(pending)}: interrupted before the last round")
    alike: dict[str, list[tuple[str, Problem]]] = {}
    for result in comparison.results:
        for problem in problems(comparison, result):
            without_numbers = re.sub(r"\d[\d.,]*", "", problem.text)
            found = (row_name(comparison, result), problem)
            alike.setdefault(without_numbers, []).append(found)
    for (name, first), *others in alike.values():
        if len(others) >= MAX_NAMED:
            lines.append(f"{1 + len(others)} rows ({name} is the first): {first.text}")
        else:
            lines.append(f"{name}: {first.text}")
            lines += [f"{other}: {problem.fact}" for other, problem in others]
    return lines
