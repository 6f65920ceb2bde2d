"""Check what a comparison must be before others rely on it, and take out what tells whose it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ..inputs.anonymous import anonymous
from .comparison import Comparison
from .statistics import MIN_ROUNDS

OWN_WORDS = ("name", "framework", "variant", "device", "compute", "task")
"""Fields of a cell whose words are crossbench's, or an adapter's: a user or a host may be called
"gpu"."""
WORD = re.compile(r"[\w:, ]+")
"""Such words; an adapter in a file has its path there."""


def published(comparison: Comparison) -> Comparison:
    """Return a copy without folders, the names of the user and of the host, and tracebacks.

    It is to be called on the machine of the run. The rows and every figure stay as they are.
    """
    return msgspec.convert(_without_names(msgspec.to_builtins(comparison)), Comparison)


def _without_names(given: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file as it may be published."""
    plain: dict[str, Any] = anonymous(given)
    for result, own in zip(plain["results"], given["results"], strict=True):
        result["traceback"] = None
        for name in OWN_WORDS:
            if WORD.fullmatch(own["cell"][name]):
                result["cell"][name] = own["cell"][name]
    if plain["machine"]["label"] != given["machine"]["label"]:  # a sweep takes the host's name
        plain["machine"]["label"] = None
    return plain


def problems(comparison: Comparison) -> list[str]:
    """Return why the results cannot be published, a line for each reason; [] where they can."""
    comparison = comparison.frozen()
    found = _private(comparison)
    for name in comparison.machine.chosen_instructions:
        found.append(f"{name} chooses the processor's instructions: unset it, and run again")
    for result in comparison.results:
        rounds = len(comparison.seconds(result))
        if result.status == "pending":
            found.append(f"{result.name}: interrupted before its last round: resume the run")
        elif result.status == "ran" and (doubt := comparison.doubt(result)):
            found.append(f"{result.name}: {doubt}")
        elif result.status == "ran" and rounds < MIN_ROUNDS:
            found.append(f"{result.name}: {rounds} rounds: an interval needs {MIN_ROUNDS}")
        if result.status == "ran" and not result.details:
            found.append(f"{result.name}: its versions are missing")
        if result.status == "ran" and comparison.own_peak(result) is None:
            found.append(f"{result.name}: its peak was not measured, which its seconds are held to")
    if not any(comparison.is_ranked(result) for result in comparison.results):
        found.append("no row is ranked")
    return found


def _private(comparison: Comparison) -> list[str]:
    """Return where the results hold folders, tracebacks, or names of the user or of the host."""
    given = msgspec.to_builtins(comparison)
    return [
        f"{at} holds a folder, a name or a traceback: check --publish takes it out"
        for at in _changed_texts(given, _without_names(given), "")
    ]


def _changed_texts(given: Any, plain: Any, at: str) -> Iterator[str]:
    """Yield where each text is that differs: "settings.data"."""
    match given:
        case str() if given != plain:
            yield at.lstrip(".")
        case dict():
            for name, inner in given.items():
                yield from _changed_texts(inner, plain[name], f"{at}.{name}")
        case list():
            for index, inner in enumerate(given):
                yield from _changed_texts(inner, plain[index], f"{at}[{index}]")
