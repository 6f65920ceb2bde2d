"""Generate the JSON Schema of a results file from its records.

python -m crossbench.results.schema > docs/results-file.schema.json
"""

from __future__ import annotations

import json

import msgspec

from .comparison import SCHEMA, Comparison


def schema() -> str:
    """Return the JSON Schema (draft 2020-12) as text."""
    generated = msgspec.json.schema(Comparison)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"crossbench results file, schema {SCHEMA}",
    }
    return json.dumps(head | generated, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    print(schema())
