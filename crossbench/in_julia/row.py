"""Write what a row in Julia is made of: the statements of its model, its loss and its optimizer, as
its program has them. Needs no Julia.
"""

from __future__ import annotations

from typing import Any

from ..source.statements import indented
from .program import TrainingDialect, rate_and_clip


def row(dialect: TrainingDialect) -> dict[str, Any]:
    """Return what the package of a framework builds a workload of, as JSON takes it.

    text: statements, whose last one is the model, its loss, the targets of labels from 0, the
    learning rate of a step from 0, what clips gradients, and what makes the optimizer's state.
    arrays: the model's, in the framework's order; a name is empty for one that stays zero.
    dropouts: their names, in the order of the layers.
    """
    arrays = [
        {
            "name": place.full_name,
            "size": place.shape[::-1],
            "change": place.change,
            "is_trained": place.is_trained,
        }
        for place in dialect.places()
    ]
    dropouts = [n.name for n in dialect.model.all_layers() if n.name in dialect.dropouts]
    return {"text": text(dialect), "arrays": arrays, "dropouts": dropouts}


def text(dialect: TrainingDialect) -> str:
    """Return the statements; the package has the structs and functions that they name, and T."""
    chain, loss, optimizer = dialect.chain(), dialect.loss, dialect.model.optimizer
    model = chain.statements(list(dialect.model.named_layers()))
    body = [
        *(function.strip() for function in [*chain.functions, *rate_and_clip(dialect)]),
        *model,
        f"loss = {loss.made or loss.function or dialect.given_gradient}",
        f"targets(labels) = {loss.targets}",
        f"function set_up({', '.join(dialect.state_of)})",
        *indented([*dialect.state(), "return state"]),
        "end",
        *([] if optimizer.schedule else ["rate = nothing"]),
        *(["clip = nothing"] if optimizer.clip_norm is None else []),
        "(; model, loss, targets, rate, clip, set_up)",
    ]
    return "\n".join(body)
