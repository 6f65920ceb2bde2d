"""Takes structs and functions of crossbench's packages in Julia into programs, word for word."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ..source.definitions import NAME, named_in

JULIA_FOLDER = Path(__file__).parents[1] / "julia"
"""The folder with crossbench's own packages."""


def definitions_in(text: str, file: Path) -> list[str]:
    """Return the blocks of a file that define what a text names, and what these name, in order."""
    return named_in(NAME.findall(text), _definitions(file), NAME.findall)


@cache
def _definitions(file: Path) -> dict[str, str]:
    """Return the blocks of a file by the name that each defines; an empty line is between them."""
    blocks = file.read_text("utf-8").strip().split("\n\n")
    defined = re.compile(r"^(?:struct |function )?([A-Za-z]\w*)[({]", re.M)
    return {found[1]: block for block in blocks if (found := defined.search(block))}
