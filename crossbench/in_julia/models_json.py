"""Writes what Julia's packages compile when they are installed: the catalogue's models.

python -m crossbench.in_julia.models_json FRAMEWORK > julia/PACKAGE/src/models.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib import import_module

from .. import models
from ..models.model import Model
from .dialect import Dialect


def models_json(dialect: type[Dialect], described: Iterable[Model] | None = None) -> str:
    """Return a line for each model, the catalogue's by default: what a workload of it is built of,
    and which examples it takes.
    """
    lines = (
        json.dumps(
            {
                "name": model.name,
                "parameters": model.trained_parameter_count,
                "takes_tokens": model.vocabulary is not None,
                "input_shape": model.input_shape,
                "has_classes": model.classes is not None,
                "output_shape": model.output_shape,
                "row": dialect(model, "cpu").row(),
            }
        )
        for model in described or map(models.get, models.names())
    )
    return "[\n" + ",\n".join(lines) + "\n]"


if __name__ == "__main__":
    adapter = import_module(f"crossbench.adapters.{sys.argv[1]}").ADAPTER
    print(models_json(adapter.workload.dialect))
