"""Draw everything that is known of a comparison: all columns, further tables, notes and legend."""

from __future__ import annotations

from typing import Any

from ..inputs.names import IDIOMATIC
from ..results.cells import CellResult
from ..results.comparison import Comparison
from ..results.epochs import TRAIN
from ..results.parity import FLOAT64_BOUND, worst
from ..results.roofline import inner_layers
from ..results.rows import Row, row
from ..results.statistics import MIN_ROUNDS
from .columns import TIMES, WORK, equal, headers, texts
from .commands import script_command
from .formatting import count, grid, joined, lines, number
from .headings import compute_words, environment_words, epoch_words, gpu_words, thread_words
from .layers import explanations, sums, warnings
from .remarks import remarks
from .sections import sections

TIME_NOTES = (
    "first epoch: in a new process, with compilation; steady epoch: the epochs after it. Both "
    "are the median of the rounds with (its 95 % bootstrap interval) or, for fewer than "
    f"{MIN_ROUNDS} rounds, [the range]. ×: ratio of the steady epochs, paired by round; × "
    "idiomatic: to the framework's own idiomatic row. Each round starts a new process.",
    "CPU s: CPU time of all threads in a steady epoch; cores: CPU s divided by the epoch's "
    "seconds; OS kernel: the share of them in which the operating system's kernel worked for the "
    "process; page faults: pages of memory that it cleared then, in a steady epoch. loss: of the "
    "first and the last batch of the first epoch. accuracy: on the test examples, after the "
    "whole first epoch, with several steady epochs after the last. min s: the fastest of all "
    "steady epochs.",
)
WORK_NOTE = (
    "deviation: ‖a - b‖ / ‖b‖ in the row's precision of the tensor that differs most from "
    "the reference. "
    "peak MiB: on the CPU the peak of the resident memory in the timed epochs; on a GPU that of "
    "the framework's allocator, including garbage not collected yet."
)
"""What the headers mean."""


def all_details(comparison: Comparison, markdown: bool = False) -> str:
    """Return the heading, the times, the work done, the further tables and the notes."""
    comparison = comparison.frozen()
    rows = [row(comparison, result) for result in comparison.results]
    hidden = _hidden(comparison, rows)
    text_columns = len({"title", "variant", "device", "task"} - hidden)
    grids = []
    for names in (TIMES, WORK):
        pairs = zip(rows, comparison.results, strict=True)
        cells = [texts(figures, result, names) for figures, result in pairs]
        grids.append(grid(cells, hidden, text_columns, markdown, headers(comparison, names)))
    parts = [*explanations(comparison), *sums(comparison), *warnings(comparison)]
    heading, notes = lines(_heading(comparison)), lines([*parts, *_notes(comparison)])
    return "\n\n".join([heading, *grids, *sections(comparison, markdown), notes])


def _hidden(comparison: Comparison, rows: list[Row]) -> set[str]:
    """Return the names of the columns that say the same, or nothing, of every row."""
    hidden = set(equal(rows, "threads", "compute", "task", "batch_size"))
    if not any(result.cell.on_gpu for result in comparison.results):
        hidden.add("gpu_speedup")
    if all(row.task == TRAIN for row in rows):
        hidden |= {"latency_seconds", "latency_p99_seconds"}
    if all(row.variant == IDIOMATIC for row in rows):
        hidden |= {"variant", "idiomatic_ratio"}
    if "compute" in hidden:
        hidden.add("float32_ratio")
    if not comparison.settings.trace_memory:
        hidden.add("allocated_bytes")
    return hidden


def _heading(comparison: Comparison) -> list[str]:
    model, data, machine = comparison.model, comparison.data, comparison.machine
    optimizer, steady = model["optimizer"], comparison.settings.epochs
    rounds = max((e.round for r in comparison.results for e in r.epochs), default=0)
    return [
        f"{model['name']}: {model['parameters']:,} parameters, {optimizer['type']} "
        f"({_fields(optimizer)}), {compute_words(comparison)}, "
        f"{count(steady, 'steady epoch')} a round, {epoch_words(comparison)}",
        f"Data: {data.name}, {data.train_examples:,} examples to train on, "
        f"{data.test_examples:,} to test on",
        f"Machine: {machine.cpu}, {count(machine.cpus, 'CPU')}, "
        f"{machine.memory_bytes / 2**30:.0f} GiB; {gpu_words(comparison)}; "
        f"{machine.system}; Python {machine.python}",
        f"{thread_words(comparison)}; {count(rounds, 'interleaved round')}; {comparison.created}; "
        f"crossbench {comparison.crossbench}{environment_words(comparison)}",
    ]


def _fields(description: dict[str, Any]) -> str:
    """Return the fields of an optimizer, and of its schedule, but those None, False or 0."""
    given = {k: v for k, v in description.items() if k != "type" and v}
    return ", ".join(
        f"{k} {v['type']} ({_fields(v)})" if isinstance(v, dict) else f"{k} {v}"
        for k, v in given.items()
    )


def _notes(comparison: Comparison) -> list[str]:
    results = comparison.results
    notes = [
        *_data_notes(comparison),
        *_model_notes(comparison.model),
        *(f"{r.name}: {line}" for r in results for line in remarks(comparison, r)),
        *(f"{r.name}: {_runtime_details(comparison, r)}" for r in results if r.details),
        _parity_note(results),
        _peak_note(results),
        *TIME_NOTES,
        _prediction_note(results),
        WORK_NOTE,
        _repeats_note(results),
        _programs_note(comparison),
    ]
    return [note for note in notes if note]


def _data_notes(comparison: Comparison) -> list[str]:
    """Return notes on where the data comes from, and on examples that no epoch takes."""
    data = comparison.data
    notes = [f"Data: {data.note}."] if data.note else []
    for size in sorted({result.cell.batch_size for result in comparison.results}):
        batches = data.batches(size)
        if data.is_cut(size):
            notes.append(
                f"The epoch is limited to the first {count(batches, 'batch', 'batches')} of "
                f"{data.train_examples // size:,}, of {size:,} examples each; the test set has "
                f"{data.test_examples:,}."
            )
        elif left_over := data.train_examples - batches * size:
            notes.append(
                f"{left_over:,} training examples, less than a batch of {size:,}, are not used."
            )
    return notes


def _model_notes(model: dict[str, Any]) -> list[str]:
    """Return notes on what an epoch includes, and on what differs by chance."""
    notes = []
    if model["data"]["augmentation"]:
        notes.append(
            "All frameworks get the same augmented pictures: the seconds of an epoch include the "
            "augmentation and the copy of each batch to the device."
        )
    if "Dropout" in _layer_types(model["layers"]):
        notes.append(
            "Each framework draws its own dropout masks, so the losses also differ by chance; in "
            "the parity check all frameworks get the same dropout masks."
        )
    return notes


def _layer_types(layers: list[dict[str, Any]]) -> set[str]:
    """Return the types of all layers, including those nested in others."""
    inner = map(inner_layers, layers)
    return {layer["type"] for layer in layers}.union(*map(_layer_types, inner))


def _runtime_details(comparison: Comparison, result: CellResult) -> str:
    """Return versions, BLAS, start time, and what only the framework's runtime reports."""
    chosen = {name: joined(values, "or") for name, values in result.choices.items()}
    parts = [", ".join(f"{name} {value}" for name, value in (result.details | chosen).items())]
    parts.append(f"{number(result.start_seconds)} s from process start to the data on the device")
    if first := comparison.first_epoch(result, "cpu_seconds"):
        parts.append(f"{number(first.median)} CPU s in the first epoch")
    parts += [
        f"{name} {number(first)} in the first epoch, {number(steady)} in a steady one"
        for name, (first, steady) in comparison.runtime_figures(result).items()
    ]
    return "; ".join(parts) + "."


def _parity_note(results: list[CellResult]) -> str:
    proved = [r for r in results if r.parity and r.parity.agrees]
    if not proved:
        return ""
    largest = max(worst(r.parity.float64)[1] or 0.0 for r in proved if r.parity)
    return (
        "Parity with the NumPy reference in float64 was proved for "
        f"{', '.join(r.name for r in proved)}: logits, loss, gradients and weights after several "
        f"steps are within {FLOAT64_BOUND:.0e} (largest deviation: {largest:.0e})."
    )


def _prediction_note(results: list[CellResult]) -> str:
    if all(r.cell.task == TRAIN for r in results):
        return ""
    return (
        "predict: the logits of every batch of the epoch in inference mode, from the initial "
        "weights. latency: the time of one batch until its logits are there, the median of "
        "the batches; 99 %: the 99th percentile, of fewer than 100 the largest. loss and accuracy "
        "are those of the predicted examples, which must be the same in all rows."
        f"{_differing_predictions(results)}"
    )


def _differing_predictions(results: list[CellResult]) -> str:
    """Return where rows differ in how many examples they predict right, as rounding may decide."""
    sentences = ""
    for size in sorted({r.cell.batch_size for r in results}):
        found = [r.predictions for r in results if r.cell.batch_size == size and r.predictions]
        correct = [each.correct for each in found]
        if len(set(correct)) > 1:
            sentences += (
                f" With batches of {size:,} they predict {min(correct):,} to {max(correct):,} "
                f"examples right: rounding may decide {max(each.near_ties for each in found):,}."
            )
    return sentences


def _repeats_note(results: list[CellResult]) -> str:
    repeats = _repeats(results)
    if repeats in ("", "1"):
        return ""
    return (
        "A steady epoch is repeated until a tenth of a second is timed, or on a GPU, and where the "
        "runtime tells seconds of its own, a whole second, or five where these are more than a "
        "twentieth of it; on a CPU 50 times at most (here "
        f"{repeats} times): its seconds are the mean."
    )


def _programs_note(comparison: Comparison) -> str:
    command = script_command(comparison)
    return f"The program of each row, in its framework alone: {command}" if command else ""


def _repeats(results: list[CellResult]) -> str:
    """Return how often the steady epochs were repeated: "1", "3–7", or "" without one."""
    repeats = [epoch.repeats for result in results for epoch in result.steady]
    if not repeats:
        return ""
    return f"{min(repeats)}" if min(repeats) == max(repeats) else f"{min(repeats)}–{max(repeats)}"


def _peak_note(results: list[CellResult]) -> str:
    if not any(r.peak for r in results):
        return ""
    memory = dict[str, float]()
    for result in results:
        if result.peak and result.peak.memory_gigabytes:
            device = result.cell.device
            memory[device] = max(memory.get(device, 0.0), result.peak.memory_gigabytes)
    reached = joined([f"{number(speed)} GB/s ({device})" for device, speed in memory.items()])
    return (
        "GFLOP/s: the model's matrix multiplications and convolutions, forward and, in training, "
        "backward. own peak: the framework's own matrix multiplication in the row's precision, "
        "in GFLOP/s; of peak: relative to the fastest one on the device. copy: the framework's own"
        + (f"; the memory itself reaches {reached}." if reached else ".")
    )
