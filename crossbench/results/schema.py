"""Generate the JSON Schema of a results file from its records, and the docstrings of their fields.

python -m crossbench.results.schema > docs/results-file.schema.json
"""

from __future__ import annotations

import ast
import json
import re
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from .comparison import SCHEMA, Comparison
from .records import Records


def schema() -> str:
    """Return the JSON Schema (draft 2020-12) as text."""
    generated, meanings = msgspec.json.schema(Comparison), _meanings()
    for name, record in generated["$defs"].items():
        for field, described in record["properties"].items():
            described["description"] = meanings[name].get(field, "")
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"crossbench results file, schema {SCHEMA}",
    }
    return json.dumps(_cleaned(head | generated), indent=1, ensure_ascii=False)


def _meanings() -> dict[str, dict[str, str]]:
    """Return the docstring below each field, by the names of the record and the field."""
    found = dict[str, dict[str, str]]()
    for file in Path(__file__).parent.glob("*.py"):
        for record in ast.parse(file.read_text("utf-8")).body:
            if not isinstance(record, ast.ClassDef):
                continue
            for pair in pairwise(record.body):
                match pair:
                    case (ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text)))):
                        found.setdefault(record.name, {})[name] = " ".join(text.split())
    return found | {Comparison.__name__: found[Records.__name__]}


def _cleaned(value: Any, name: str = "") -> Any:
    """Return the schema with descriptions that say null for None and are not indented, which Python
    3.12 leaves to us.
    """
    if isinstance(value, dict):
        return {key: _cleaned(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(inner) for inner in value]
    if name == "description" and isinstance(value, str):
        return re.sub(r"\bNone\b", "null", cleandoc(value))
    return value


if __name__ == "__main__":
    print(schema())
