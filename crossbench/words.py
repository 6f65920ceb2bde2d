"""Text from outside, made fit for one line of a terminal: errors, names and notes."""

from __future__ import annotations

import re

# colours and cursor movements of a terminal (ECMA-48), such as ESC [ 31 m
ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def clean(text: str, limit: int = 500) -> str:
    """Return the text as one printable line of at most `limit` characters.

    Line breaks and other white space become single spaces, escape sequences are removed, and other
    characters that are not printable become "?". What is cut off ends in "…".
    """
    start = ESCAPE_SEQUENCE.sub("", text[: 10 * limit])  # bounds the work on a text of megabytes
    words = " ".join(start.split())
    line = "".join(character if character.isprintable() else "?" for character in words)
    whole = len(line) <= limit and len(text) <= 10 * limit
    return line if whole else f"{line[: limit - 1]}…"
