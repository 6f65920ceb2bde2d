"""Present comparisons to people. Imports results only."""

from typing import Literal

Format = Literal["text", "markdown", "csv", "json"]
FORMATS: tuple[Format, ...] = ("text", "markdown", "csv", "json")
