"""Generate the JSON Schema of a results file from its records.

python -m crossbench.results.schema > docs/results-file.schema.json
"""

from __future__ import annotations

import json
from inspect import cleandoc
from typing import Any

import msgspec

from .comparison import SCHEMA, Comparison


def schema() -> str:
    """Return the JSON Schema (draft 2020-12) as text."""
    generated = msgspec.json.schema(Comparison)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"crossbench results file, schema {SCHEMA}",
    }
    return json.dumps(_cleaned(head | generated), indent=1, ensure_ascii=False)


def _cleaned(value: Any, name: str = "") -> Any:
    """Return the schema with descriptions that are not indented: Python 3.12 leaves that to us."""
    if isinstance(value, dict):
        return {key: _cleaned(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(inner) for inner in value]
    return cleandoc(value) if name == "description" and isinstance(value, str) else value


if __name__ == "__main__":
    print(schema())
