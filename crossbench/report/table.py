"""The comparison as a table in plain text, with what is needed to judge it."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

from ..results.comparison import Comparison
from ..results.records import FLOAT64_BOUND, CellResult, worst
from ..results.statistics import Estimate

NOTHING = "–"


def table(comparison: Comparison) -> str:
    """What was done, a row for each cell, and notes on what a reader must know."""
    rows = [_row(comparison, result) for result in comparison.results]
    gpu = any(result.cell.device == "gpu" for result in comparison.results)
    columns = [name for name in rows[0] if gpu or name != "GPU speed-up"]
    body = tabulate(
        [[row[name] for name in columns] for row in rows],
        headers=columns,
        tablefmt="simple",
        disable_numparse=True,
        colalign=["left", "left", *["right"] * (len(columns) - 2)],
    )
    return "\n".join([*_heading(comparison), "", body, "", *_notes(comparison)])


def _heading(comparison: Comparison) -> list[str]:
    model, data, machine = comparison.model, comparison.data, comparison.machine
    settings = comparison.settings
    optimizer = ", ".join(f"{k} {v}" for k, v in model["optimizer"].items() if k != "type")
    epochs = "1 epoch" if settings.epochs == 1 else f"{settings.epochs} epochs"
    return [
        f"{model['name']}: {model['parameters']:,} parameters, {model['optimizer']['type']} "
        f"({optimizer}), float32, {epochs} of {data.batches} batches of {data.batch_size:,}",
        f"Data: {data.name}, {data.train_images:,} images to train on, "
        f"{data.test_images:,} to test on",
        f"Machine: {machine.cpu}, {_count(machine.cpus, 'CPU')}, "
        f"{machine.memory_bytes / 2**30:.0f} GiB; {', '.join(machine.gpus) or 'no GPU'}; "
        f"{machine.system}; Python {machine.python}",
        f"{_count(settings.threads, 'thread')}; {_count(settings.rounds, 'interleaved round')} "
        f"after the first; {comparison.created}; crossbench {comparison.crossbench}",
    ]


def _row(comparison: Comparison, result: CellResult) -> dict[str, str]:
    first = comparison.first_epoch(result)
    losses = first.losses if first else []
    cpu = comparison.steady(result, "cpu_seconds")
    accuracy, memory = result.test_accuracy, result.peak_memory
    return {
        "framework": result.cell.title,
        "device": result.cell.device,
        "first epoch s": _number(first.wall_seconds if first else None),
        "steady epoch s": _spread(comparison.steady(result)),
        "CPU s": _number(cpu.median if cpu else None),
        "images/s": _whole(comparison.images_per_second(result)),
        "× fastest": _spread(comparison.ratio_to_fastest(result)),
        "GPU speed-up": _spread(comparison.gpu_speedup(result)),
        "loss": f"{_loss(losses[0])} → {_loss(losses[-1])}" if losses else NOTHING,
        "accuracy": NOTHING if accuracy is None else f"{accuracy:.1%}",
        "deviation": _deviation(result),
        "peak MiB": _whole(memory and memory / 2**20),
    }


def _notes(comparison: Comparison) -> list[str]:
    results, data = comparison.results, comparison.data
    notes = [f"Data: {data.note}." if data.note else ""]
    left_over = data.train_images - data.batches * data.batch_size
    if left_over:
        notes.append(f"{left_over:,} images, less than a batch, were left over.")
    for result in results:
        notes += [f"{result.name}: {line}" for line in remarks(result)]
    notes += [
        f"{result.name}: {_details(comparison, result)}" for result in results if result.details
    ]
    notes.append(_parity_note(results))
    notes += [
        "first epoch: with compilation. steady epoch, × fastest: median (minimum–maximum) of the "
        "rounds, × fastest paired by round.",
        "CPU s: of all threads, in a steady epoch. loss: of the first epoch's first and last "
        "batch. accuracy: on the test images, after the first round.",
        "deviation: in float32, of the tensor furthest from the reference, ‖a - b‖ / ‖b‖. "
        "peak MiB: resident memory on the CPU, the framework's allocator on a GPU.",
    ]
    return [note for note in notes if note]


def remarks(result: CellResult) -> list[str]:
    """What a reader must know of one cell: why it has no figures or no rank."""
    threads, cell = result.threads_reported, result.cell
    lines = [f"did not run: {result.reason}"] if result.status == "unavailable" else []
    if result.status == "failed":
        lines.append(f"failed: {result.reason}")
    if result.parity and not result.parity.agrees:
        lines.append(f"not ranked, it does not do the same work: {result.parity.disagreement}")
    if cell.device == "cpu" and threads is not None and threads != cell.threads:
        lines.append(f"{_count(cell.threads, 'thread')} asked for, but it uses {threads}")
    if result.cpus_allowed is not None and result.cpus_allowed > cell.threads:
        lines.append(f"its threads may run on {result.cpus_allowed} CPUs: {cell.threads} asked for")
    return lines


def _details(comparison: Comparison, result: CellResult) -> str:
    """Versions and BLAS, then what only the framework's runtime can tell."""
    words = [", ".join(f"{name} {value}" for name, value in result.details.items())]
    words.append(f"{_number(result.start_seconds)} s from its start to the data in place")
    words += [
        f"{name} {_number(first)} in the first epoch, {_number(steady)} in a steady one"
        for name, (first, steady) in comparison.runtime_figures(result).items()
    ]
    return "; ".join(words) + "."


def _parity_note(results: list[CellResult]) -> str:
    proved = [r for r in results if r.parity and r.parity.agrees]
    if not proved:
        return ""
    furthest = max(worst(r.parity.float64)[1] or 0.0 for r in proved if r.parity)
    return (
        f"Parity: {', '.join(r.name for r in proved)} proved the same as the NumPy reference in "
        f"float64: logits, loss, gradients, weights after several steps within {FLOAT64_BOUND:.0e} "
        f"(furthest: {furthest:.0e})."
    )


def _deviation(result: CellResult) -> str:
    if result.parity is None:
        return NOTHING
    value = worst(result.parity.float32)[1]
    return "differs" if not result.parity.agrees or value is None else f"{value:.1e}"


def _spread(estimate: Estimate | None) -> str:
    if estimate is None:
        return NOTHING
    if estimate.minimum == estimate.maximum:
        return _number(estimate.median)
    low, high = _number(estimate.minimum), _number(estimate.maximum)
    return f"{_number(estimate.median)} ({low}–{high})"


def _number(value: float | None) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return NOTHING
    if value >= 100:
        return f"{value:,.0f}"
    digits = 2 if value >= 1 or value == 0 else 3 if value >= 0.1 else 4
    return f"{value:.{digits}f}"


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _loss(value: Any) -> str:
    return "not finite" if value is None else f"{value:.3f}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
