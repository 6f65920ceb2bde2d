"""Writes the descriptions of the catalogue's models for the precompilation of the Julia packages.

python -m crossbench.in_julia.models_json > julia/CrossBenchJulia/src/models.json
"""

from __future__ import annotations

import json

from .. import models


def models_json() -> str:
    """Return a line for each model of the catalogue: its description, without its data."""
    lines = (
        json.dumps({what: value for what, value in description.items() if what != "data"})
        for description in (models.get(name).description() for name in models.names())
    )
    return "[\n" + ",\n".join(lines) + "\n]"


if __name__ == "__main__":
    print(models_json())
