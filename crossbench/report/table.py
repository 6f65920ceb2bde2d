"""The comparison as a table in plain text, with what is needed to judge it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..results.comparison import Comparison
from ..results.records import FLOAT64_BOUND, CellResult, worst
from ..results.statistics import LEAST
from .figures import NOTHING, count, grid, lines, number, percent, spread, whole
from .remarks import remarks
from .sections import sections


def table(comparison: Comparison) -> str:
    """What was done, the times, what was done in them, and notes on what a reader must know."""
    comparison = comparison.frozen()
    hidden = set()
    if not any(result.cell.on_gpu for result in comparison.results):
        hidden.add("GPU speed-up")
    if len({result.cell.threads for result in comparison.results}) == 1:
        hidden.add("threads")
    if not comparison.settings.trace_memory:
        hidden.add("allocated MiB")
    grids = [
        grid([row(comparison, result) for result in comparison.results], hidden)
        for row in (_times, _work)
    ]
    heading, notes = lines(_heading(comparison)), lines(_notes(comparison))
    return "\n\n".join([heading, *grids, *sections(comparison), notes])


def _heading(comparison: Comparison) -> list[str]:
    model, data, machine = comparison.model, comparison.data, comparison.machine
    settings = comparison.settings
    optimizer = ", ".join(f"{k} {v}" for k, v in model["optimizer"].items() if k != "type")
    return [
        f"{model['name']}: {model['parameters']:,} parameters, {model['optimizer']['type']} "
        f"({optimizer}), float32, {count(settings.epochs, 'epoch')} of "
        f"{count(data.batches, 'batch', 'batches')} of {data.batch_size:,}",
        f"Data: {data.name}, {data.train_examples:,} examples to train on, "
        f"{data.test_examples:,} to test on",
        f"Machine: {machine.cpu}, {count(machine.cpus, 'CPU')}, "
        f"{machine.memory_bytes / 2**30:.0f} GiB; {_gpus(comparison)}; "
        f"{machine.system}; Python {machine.python}",
        f"{_threads(comparison)}; {_rounds(comparison)}; {comparison.created}; "
        f"crossbench {comparison.crossbench}",
    ]


def _gpus(comparison: Comparison) -> str:
    """Return the GPUs' names; of several the measured ones, with their number."""
    names = comparison.machine.gpus
    used = sorted({r.cell.gpu_index for r in comparison.results if r.cell.on_gpu})
    if not names:
        return comparison.machine.gpu_problem or "no GPU"
    if len(names) == 1 or not used:
        return ", ".join(names)
    measured = ", ".join(f"gpu:{i} {names[i]}" for i in used if i < len(names))
    return f"{measured or 'none'} of {len(names)} GPUs"


def _threads(comparison: Comparison) -> str:
    numbers = sorted({r.cell.threads for r in comparison.results})
    return count(numbers[0], "thread") if len(numbers) == 1 else f"{_list(numbers)} threads"


def _rounds(comparison: Comparison) -> str:
    """Those that were finished."""
    done = {max((e.round for e in r.epochs), default=0) for r in comparison.results if r.epochs}
    return count(max(done, default=0), "interleaved round")


def _list(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _cell(result: CellResult) -> dict[str, str]:
    return {
        "framework": result.cell.title,
        "device": result.cell.device,
        "threads": str(result.cell.threads),
    }


def _times(comparison: Comparison, result: CellResult) -> dict[str, str]:
    cpu = comparison.steady(result, "cpu_seconds")
    return _cell(result) | {
        "first epoch s": spread(comparison.first_epoch(result)),
        "steady epoch s": spread(comparison.steady(result)),
        "min s": number(min((e.wall_seconds for e in result.steady), default=None)),
        "CPU s": number(cpu.median if cpu else None),
        "cores": number(comparison.cores(result)),
        "examples/s": number(comparison.examples_per_second(result)),
        f"× {comparison.settings.baseline or 'fastest'}": spread(comparison.ratio(result)),
        "GPU speed-up": spread(comparison.gpu_speedup(result)),
    }


def _work(comparison: Comparison, result: CellResult) -> dict[str, str]:
    losses = result.epochs[0].losses if result.epochs else []
    gflops, peak = comparison.gflops(result), comparison.peak(result)
    memory = result.peak_memory
    return _cell(result) | {
        "GFLOP/s": number(gflops),
        "of peak": percent(gflops / peak.gflops if gflops and peak else None),
        "loss": f"{_loss(losses[0])} → {_loss(losses[-1])}" if losses else NOTHING,
        "accuracy": percent(result.test_accuracy),
        "deviation": _deviation(result),
        "peak MiB": whole(memory and memory / 2**20),
        "allocated MiB": whole(result.allocated and result.allocated / 2**20),
    }


def _notes(comparison: Comparison) -> list[str]:
    results, data = comparison.results, comparison.data
    notes = [f"Data: {data.note}." if data.note else ""]
    left_over = data.train_examples - data.batches * data.batch_size
    if data.cut:
        notes.append(
            f"The epoch is cut to the first {count(data.batches, 'batch', 'batches')} of "
            f"{data.train_examples // data.batch_size:,}, and the test to as many examples."
        )
    elif left_over:
        notes.append(f"{left_over:,} examples, less than a batch, were left over.")
    if comparison.model["data"]["augmentation"]:
        notes.append(
            "The pictures are augmented, the same for all: an epoch's seconds hold that, and each "
            "batch's way to the device."
        )
    if "Dropout" in _kinds(comparison.model["layers"]):
        notes.append(
            "Each framework draws what its dropouts keep, so the losses differ by chance too; in "
            "the proof of sameness the draws are given."
        )
    for result in results:
        notes += [f"{result.name}: {line}" for line in remarks(comparison, result)]
    notes += [
        f"{result.name}: {_details(comparison, result)}" for result in results if result.details
    ]
    notes += [_parity_note(results), _peak_note(results)]
    notes += [
        "first epoch: of a cold process, with compilation; steady epoch: after it; each the "
        f"rounds' median and (its 95 % interval, bootstrap) or, of fewer than {LEAST} rounds, "
        "[their range]. ×: of steady epochs, paired by round. A round is a new process.",
        "CPU s: of all threads, in a steady epoch; cores: CPU s by the epoch's seconds. loss: of "
        "an epoch's first and last batch. accuracy: on the test examples, after the first round's "
        "steady epochs. min s: the fastest steady epoch of all.",
        "deviation: in float32, of the tensor furthest from the reference, ‖a - b‖ / ‖b‖. "
        "peak MiB: resident memory on the CPU; on a GPU the most that the framework's allocator "
        "had given out at a time, garbage included that was not collected yet.",
    ]
    notes.append(_repeats_note(results))
    return [note for note in notes if note]


def _kinds(layers: list[dict[str, Any]]) -> set[str]:
    """Of all layers, those inside of others too."""
    inner = [layer.get(way, []) for layer in layers for way in ("body", "shortcut")]
    return {layer["type"] for layer in layers}.union(*map(_kinds, inner))


def _details(comparison: Comparison, result: CellResult) -> str:
    """Versions and BLAS, then what only the framework's runtime can tell."""
    words = [", ".join(f"{name} {value}" for name, value in result.details.items())]
    words.append(f"{number(result.start_seconds)} s from its start to the data in place")
    if first := comparison.first_epoch(result, "cpu_seconds"):
        words.append(f"{number(first.median)} CPU s in the first epoch")
    words += [
        f"{name} {number(first)} in the first epoch, {number(steady)} in a steady one"
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


def _repeats_note(results: list[CellResult]) -> str:
    repeats = [epoch.repeats for r in results if r.cell.on_gpu for epoch in r.steady]
    if not repeats:
        return ""
    times = f"{min(repeats)}" if min(repeats) == max(repeats) else f"{min(repeats)}–{max(repeats)}"
    return (
        "On a GPU a steady epoch begins after half a second of training that is not timed, and is "
        f"repeated until a second is timed (here {times} times): its "
        "seconds are the mean."
    )


def _peak_note(results: list[CellResult]) -> str:
    peaks = [
        f"{r.name} {number(r.peak.gflops)} GFLOP/s, {number(r.peak.copy_gigabytes)} GB/s"
        for r in results
        if r.peak
    ]
    if not peaks:
        return ""
    return (
        f"GFLOP/s: the model's products, forward and backward. of peak: of the most that a float32 "
        f"matrix product reached on the device (product and copy: {'; '.join(peaks)})."
    )


def _deviation(result: CellResult) -> str:
    if result.parity is None:
        return NOTHING
    value = worst(result.parity.float32)[1]
    return "differs" if not result.parity.agrees or value is None else f"{value:.1e}"


def _loss(value: Any) -> str:
    if value is None:
        return "not finite"
    return f"{value:.3f}" if abs(value) < 1e5 else f"{value:.1e}"
