"""Takes structs and functions of crossbench's packages in Julia into programs, word for word."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ..source.definitions import NAME, named_in

JULIA_FOLDER = Path(__file__).parents[1] / "julia"
"""The folder with crossbench's own packages."""


def layers_in(text: str, package: str) -> list[str]:
    """Return the definitions of layers that a text names, as `definitions_in` does: those that the
    frameworks share, and those of this one's package.
    """
    return definitions_in(text, "CrossBenchJulia/src/layers.jl", f"{package}/src/layers.jl")


def definitions_in(text: str, *files: str) -> list[str]:
    """Return the blocks that define what a text names, and what these name, in order.

    files: their paths in the folder with crossbench's own packages.
    """
    return named_in(NAME.findall(text), _definitions(files), NAME.findall)


@cache
def _definitions(files: tuple[str, ...]) -> dict[str, str]:
    """Return the blocks of files by the name that each defines; an empty line is between them."""
    texts = [(JULIA_FOLDER / file).read_text("utf-8") for file in files]
    blocks = [block for text in texts for block in text.strip().split("\n\n")]
    defined = re.compile(r"^(?:struct |function )?([A-Za-z]\w*)[({]", re.M)
    return {found[1]: block for block in blocks if (found := defined.search(block))}
