"""Takes classes and functions of an adapter's own files into programs, word for word."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path


def definitions_in(line: str, *files: Path) -> tuple[str, ...]:
    """Return the source code of the files' classes and functions that a line names, and of those
    that these name, in the order of the files.
    """
    own = _definitions(files)
    return tuple(named_in(NAME.findall(line), own, _names))


NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
"""A name in source code that is no attribute."""


def named_in(
    start: Iterable[str], own: Mapping[str, str], names: Callable[[str], Iterable[str]]
) -> list[str]:
    """Return the definitions of these names and of those that they name, in their order.

    own: the source code of each definition by its name. names: returns those in source code.
    """
    found: set[str] = set()
    new = own.keys() & set(start)
    while new:
        found |= new
        new = {name for one in new for name in names(own[one])} & own.keys() - found
    return [text for name, text in own.items() if name in found]


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
