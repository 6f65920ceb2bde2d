"""For mkdocstrings: docstrings are plain text, and their "name: meaning" lines become a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"(\w+(?:, \w+)*): ")


class PlainDocstrings(griffe.Extension):
    """Lists the parameters of a function, and the fields of a class, that its docstring explains.

    Only lines that begin with the name of a parameter or field are entries: the rest stays prose.
    """

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring and (names := _names(obj)):
            obj.docstring.value = as_list(obj.docstring.value, names)


def as_list(text: str, names: set[str]) -> str:
    """Return the docstring with an item of a Markdown list for each line "name: meaning"."""
    lines, before = [], ""
    for line in text.splitlines():
        entry = ENTRY.match(line)
        if entry and names.issuperset(entry[1].split(", ")):
            if not before.startswith(("- ", "    ")):
                lines.append("")
            line = f"- `{entry[1]}`: {line[entry.end() :]}"
        elif before.startswith(("- ", "    ")) and line and not line.startswith(" "):
            lines.append("")  # prose after the list
        lines.append(line)
        before = line
    return "\n".join(lines)


def _names(obj: griffe.Object) -> set[str]:
    if isinstance(obj, griffe.Function):
        return {parameter.name for parameter in obj.parameters}
    if isinstance(obj, griffe.Class):
        return {name for name, member in obj.members.items() if not member.is_function}
    return set()
