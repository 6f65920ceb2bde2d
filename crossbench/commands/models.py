"""Implements `models`: size, data, optimizer and source of each model of the catalogue."""

from __future__ import annotations

from .. import models
from ..models import Model
from ..report.formatting import grid, number
from ..terminal.output import write_stdout
from .parsing import Parser


def main(arguments: list[str]) -> int:
    parser = Parser("crossbench models", description="List the models that --model takes.")
    parser.parse_args(arguments)
    write_stdout(catalogue())
    return 0


def catalogue() -> str:
    """Return a table with a row per model; FLOPs are of one example, forward and backward."""
    notes = [
        "not trained: running statistics of batch norms, which count as parameters.",
        "MFLOP: 10^6 floating-point operations of the matrix multiplications and convolutions for "
        "one example, forward and backward. imdb_fasttext and text_lstm take their vocabulary from "
        "the data: here it is 1,200,000 words and bigrams, and the 57 characters of Nietzsche's "
        "text.",
    ]
    return "\n".join([grid([_row(models.get(name)) for name in models.names()]), "", *notes])


def _row(model: Model) -> dict[str, str]:
    return {
        "model": model.name,
        "source": model.source,
        "data": type(model.data).__name__ + (", augmented" if model.data.augmentation else ""),
        "batch": f"{model.batch_size:,}",
        "optimizer": f"{type(model.optimizer).__name__} {model.optimizer.learning_rate:g}",
        "parameters": f"{model.parameter_count:,}",
        "not trained": f"{model.parameter_count - model.trained_parameter_count:,}",
        "MFLOP": number(model.training_flops / 1e6),
    }
