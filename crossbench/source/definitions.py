"""Takes classes and functions of an adapter's own files into programs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path


def definitions_in(line: str, *files: Path) -> tuple[str, ...]:
    """Return the source code of the files' classes and functions that a line names, and of those
    that these name, in the order of the files.
    """
    own = _definitions(files)
    found: set[str] = set()
    new = set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", line)) & own.keys()
    while new:
        found |= new
        new = {name for one in new for name in _names(own[one])} & own.keys() - found
    return tuple(text for name, text in own.items() if name in found)


@cache
def _definitions(files: tuple[Path, ...]) -> dict[str, str]:
    return dict(item for file in files for item in _of_file(file.read_text("utf-8")))


def _of_file(text: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            start = min(part.lineno for part in (node, *node.decorator_list))
            yield node.name, "\n".join(lines[start - 1 : node.end_lineno])


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
