"""Reads a TOML file that a user has named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from .regular_file import open_regular


def read(path: Path) -> tuple[dict[str, Any], str]:
    """Return the file's table and its text.

    Raises OSError if it cannot be read, and ValueError, in a line, if it is not TOML.
    """
    with open(open_regular(path), encoding="utf-8") as file:
        text = file.read()
    try:
        return tomllib.loads(text), text
    except RecursionError:
        raise ValueError("nested too deeply") from None
