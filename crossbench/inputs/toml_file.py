"""Reads a TOML file that a user has named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def read(path: Path) -> tuple[dict[str, Any], str]:
    """Return the file's table and its text.

    Raises OSError if it cannot be read, and ValueError, in a line, if it is not TOML.
    """
    if path.exists() and not path.is_file():  # reading a pipe or a device might never end
        raise OSError(0, "it is not a regular file")
    text = path.read_text(encoding="utf-8")
    try:
        return tomllib.loads(text), text
    except RecursionError:
        raise ValueError("nested too deeply") from None
