"""In one screen: the models that can be named, how large they are, and where they come from."""

from __future__ import annotations

from . import models
from .models import Model
from .report.figures import grid, number


def catalogue() -> str:
    """A row a model: parameters, FLOPs of one example's forward and backward pass, and so on."""
    notes = [
        "not trained: running statistics of batch norms, among the parameters.",
        "MFLOP: 10^6 floating-point operations of the model's products for one example, forward "
        "and backward. imdb_fasttext and text_lstm take their vocabulary from the data: here it is "
        "1,200,000 words and bigrams, and 57 characters, as Nietzsche's text has.",
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
        "not trained": f"{model.parameter_count - model.trained_count:,}",
        "MFLOP": number(model.training_flops / 1e6),
    }
