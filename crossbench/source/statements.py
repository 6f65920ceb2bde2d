"""Writes statements of source code: calls, lists in brackets, blocks of a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

WIDTH = 88
"""Characters of a line of Python: ruff's and Black's default."""


@dataclass(frozen=True)
class Call:
    """Holds the call of a function or a class; its arguments are source code, or calls."""

    function: str
    arguments: tuple[str | Call, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"

    def assigned_to(self, name: str) -> str:
        """Return the statement that gives the result a name."""
        return self.after(f"{name} = ")

    def after(self, start: str, room: int = WIDTH) -> str:
        """Return the statement that begins so; see `bracketed`."""
        return bracketed(f"{start}{self.function}(", self.arguments, ")", room)


def call(function: str, *arguments: Any, **options: Any) -> Call:
    """Return a call in Python; text is source code, and an option that is None is left out."""
    given = {name: value for name, value in options.items() if value is not None}
    named = (f"{name}={code(value)}" for name, value in given.items())
    positional = (value if isinstance(value, Call) else code(value) for value in arguments)
    return Call(function, (*positional, *named))


def code(value: Any) -> str:
    """Return the source code of a value; text is source code already."""
    if isinstance(value, float):
        return repr(float(f"{value:.12g}"))  # 1 - 0.99 is 0.01
    return value if isinstance(value, str) else repr(value)


def unless(default: Any, value: Any) -> Any:
    """Return the value of an option, or, where it is the framework's default, None."""
    return None if value == default else value


def unsupported(kind: str, found: Any, title: str) -> NotImplementedError:
    """Return the error for a layer, loss, optimizer or schedule that no program is written for."""
    return NotImplementedError(f"unsupported {kind} for a program in {title}: {found}")


def one_or_both(values: tuple[int, ...]) -> int | tuple[int, ...]:
    """Return equal numbers, one for each axis, as one number."""
    return values[0] if len(set(values)) == 1 else values


def bracketed(start: str, items: Iterable[str | Call], end: str, room: int = WIDTH) -> str:
    """Return a statement with a list in brackets, broken into lines as Black does.

    room: characters of a line, without the indentation.
    """
    items = list(items)
    joined = ", ".join(map(str, items))
    if len(f"{start}{joined}{end}") <= room:
        return f"{start}{joined}{end}"
    if end.startswith(")") and 4 + len(joined) <= room:
        return f"{start}\n    {joined}\n{end}"
    lines = [
        bracketed(f"{item.function}(", item.arguments, "),", room - 4)
        if isinstance(item, Call)
        else f"{item},"
        for item in items
    ]
    return "\n".join([start, *indented(lines), end])


def indented(lines: Iterable[str]) -> list[str]:
    """Return the lines of a function's or a loop's body."""
    return [f"    {line}" if line else "" for text in lines for line in text.split("\n")]


def join_blocks(blocks: Iterable[str]) -> str:
    """Return the blocks of a Python program, with two lines around functions and classes."""
    text, was_definition = "", False
    for block in blocks:
        is_definition = block.startswith(("def ", "class ", "@"))
        if text:
            text += "\n\n\n" if is_definition or was_definition else "\n\n"
        text, was_definition = text + block, is_definition
    return f"{text}\n"
