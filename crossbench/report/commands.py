"""Write the command lines that belong to a run: what repeats it, and what writes its programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ..inputs.names import FLOAT32
from ..results.cells import Cell
from ..results.comparison import Comparison
from ..results.epochs import TRAIN


def run_command(comparison: Comparison) -> str:
    """Return the command line that repeats the run."""
    settings = comparison.settings
    accuracy = settings.target_accuracy
    cells = [r.cell for r in comparison.results]
    words = _work(comparison, cells) | {
        "compute": _other_than(FLOAT32, (cell.compute for cell in cells)),
        "task": _joined(cell.task for cell in cells),
        "rounds": settings.rounds or "auto",
        "precision": settings.precision and f"{100 * settings.precision:g}%",
        "max-seconds": settings.max_seconds,
        "epochs": settings.epochs,
        "baseline": settings.baseline,
        "target-accuracy": accuracy and f"{100 * accuracy:g}%",
        "target-loss": settings.target_loss,
        "price": ",".join(f"{k}={v}/h" for k, v in settings.prices.items()) or None,
        "trace-memory": settings.trace_memory,
        "layers": settings.layers,
    }
    return f"python -m crossbench {_words(words)}"


def script_command(comparison: Comparison) -> str:
    """Return the command line that writes the programs of the rows; empty if none trains."""
    cells = [r.cell for r in comparison.results if r.cell.task == TRAIN]
    if not cells:
        return ""
    return f"python -m crossbench script {_words(_work(comparison, cells))}"


def _work(comparison: Comparison, cells: Iterable[Cell]) -> dict[str, Any]:
    """Return the words of what the cells work on."""
    cells, settings, data = list(cells), comparison.settings, comparison.data
    return {
        "frameworks": _joined(cell.implementation for cell in cells),
        "devices": _joined(cell.device for cell in cells),
        "model": settings.model,
        "input": _joined(comparison.input_shape) if "weights" in comparison.model else None,
        "data": settings.data,
        "batch-size": _joined(cell.batch_size for cell in cells),
        "batches": data.most_batches,
        "examples": data.most_examples,
        "seed": settings.seed,
        "threads": _joined(cell.threads for cell in cells),
    }


def _other_than(default: str, values: Iterable[str]) -> str | None:
    """Return the different values in words; None where they are the default alone."""
    found = _joined(values)
    return None if found == default else found


def _joined(values: Iterable[Any]) -> str:
    return ",".join(map(str, dict.fromkeys(values)))


def _words(options: Mapping[str, Any]) -> str:
    """Return options for a shell: one that is True is a switch, one that is False or None is left
    out.
    """
    words: list[str] = []
    for name, value in options.items():
        if value is not None and value is not False:
            words += [f"--{name}"] if value is True else [f"--{name}", shlex.quote(str(value))]
    return " ".join(words)
