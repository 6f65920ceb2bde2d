"""Cleans text from outside, such as errors and names, so that it fits one line of a terminal.

Also tells seconds in words.
"""

from __future__ import annotations

import re

ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Colours and cursor movements of a terminal (ECMA-48), such as ESC [ 31 m."""


def printable(text: str, limit: int = 500) -> str:
    """Return the text as one printable line of at most `limit` characters.

    Line breaks and other white space become single spaces, escape sequences are removed, and other
    characters that are not printable become "?". Text that is cut off ends in "…".
    """
    start = ESCAPE_SEQUENCE.sub("", text[: 10 * limit])  # keeps this fast for megabytes of text
    words = " ".join(start.split())
    line = "".join(character if character.isprintable() else "?" for character in words)
    whole = len(line) <= limit and len(text) <= 10 * limit
    return line if whole else f"{line[: limit - 1]}…"


def duration(seconds: float) -> str:
    """Return a duration in words: "40 s", "4 min", "1 h 5 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
