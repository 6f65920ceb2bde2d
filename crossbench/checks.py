"""What a value may be: the rules for the fields of descriptions and for the arguments of a run.

A description (a layer, an optimizer, a model, a source of data) is a frozen dataclass on top of
Checked, whose annotations name the rules: `features: Size`.
"""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Annotated, Any, get_type_hints

import numpy as np

from .errors import CrossbenchError, SpecError
from .words import clean

LARGEST = 2**31 - 1  # what a 32-bit index counts to


@dataclass(frozen=True)
class Rule:
    """What a value may be.

    words: the same, to follow "must be". accept: returns the value as it is kept, as Python's own
        type; raises where it is not allowed.
    """

    words: str
    accept: Callable[[Any], Any]

    def check(self, name: str, value: Any) -> Any:
        """Return the value as it is kept; SpecError says what is allowed and what was given."""
        try:
            return self.accept(value)
        except (TypeError, ValueError, OverflowError):
            raise SpecError(f"{name} must be {self.words}, not {shown(value)}") from None


class Checked:
    """The base of frozen dataclasses whose fields are checked when they are made."""

    def __post_init__(self) -> None:
        """Raise SpecError for the first field that its rule does not allow."""
        kind: type = type(self)
        for name, rule in _rules(kind).items():
            value = rule.check(f"{kind.__name__}: {name}", getattr(self, name))
            object.__setattr__(self, name, value)


@cache
def _rules(kind: type) -> dict[str, Rule]:
    """Return the rules of the fields that are annotated with one."""
    return {
        name: rule
        for name, hint in get_type_hints(kind, include_extras=True).items()
        for rule in getattr(hint, "__metadata__", ())
        if isinstance(rule, Rule)
    }


def shown(value: Any) -> str:
    """Return the value's repr in a line of bounded length."""
    with suppress(Exception):  # a repr may raise: an int's does over 4,300 digits
        return clean(_SHORT.repr(value))
    return f"a value of type {type(value).__name__}"


def shown_error(error: BaseException) -> str:
    """Return the error in a line: its kind, unless it is one of crossbench's own, and its text."""
    kind = "" if isinstance(error, CrossbenchError) else type(error).__name__
    text = ""
    with suppress(Exception):  # a __str__ may raise
        text = clean(str(error))
    return ": ".join(part for part in (kind, text) if part)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def whole(least: int, most: int = LARGEST) -> Rule:
    """Return the rule for whole numbers, NumPy's included; True and 2.0 are none."""

    def accept(value: Any) -> int:
        number = int(operator.index(value))
        _require(not isinstance(value, bool) and least <= number <= most)
        return number

    return Rule(f"a whole number from {least} to {most:,}", accept)


def number(words: str, allowed: Callable[[float], bool]) -> Rule:
    """Return the rule for numbers, NumPy's included; words and True are none."""

    def accept(value: Any) -> float:
        _require(isinstance(value, Real) and not isinstance(value, bool) and allowed(float(value)))
        return float(value)

    return Rule(words, accept)


def one_of(words: str, kind: Any) -> Rule:
    """Return the rule for instances of a class."""

    def accept(value: Any) -> Any:
        _require(isinstance(value, kind))
        return value

    return Rule(words, accept)


def several(words: str, rule: Rule, counts: range) -> Rule:
    """Return the rule for tuples of so many values; lists and arrays become tuples."""

    def accept(values: Any) -> tuple[Any, ...]:
        _require(isinstance(values, tuple | list | np.ndarray) and len(values) in counts)
        return tuple(rule.accept(value) for value in values)

    return Rule(words, accept)


def optional(rule: Rule) -> Rule:
    """Return the rule that allows None too."""
    return Rule(
        f"None or {rule.words}", lambda value: None if value is None else rule.accept(value)
    )


def _true_or_false(value: Any) -> bool:
    _require(isinstance(value, bool | np.bool))
    return bool(value)


def _line(value: Any) -> str:
    _require(isinstance(value, str) and value.isprintable() and not value.isspace() and value)
    return str(value)


def _require(allowed: Any) -> None:
    if not allowed:
        raise ValueError


SIZE, FROM_0 = whole(1), whole(0)
BELOW_1 = number("a number from 0 to below 1", lambda value: 0 <= value < 1)
OVER_0 = number("a finite number over 0", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = number("a finite number of at least 0", lambda value: 0 <= value < math.inf)
UP_TO_1 = number("a number from 0 to 1", lambda value: 0 <= value <= 1)
TRUE_OR_FALSE = Rule("True or False", _true_or_false)
LINE = Rule("text in one line", _line)
PAIR = several(f"two whole numbers, each from 1 to {LARGEST:,}", SIZE, range(2, 3))
PAIR_FROM_0 = several(f"two whole numbers, each from 0 to {LARGEST:,}", FROM_0, range(2, 3))
SHAPE = several(f"one, two or three whole numbers, each from 1 to {LARGEST:,}", SIZE, range(1, 4))

Size = Annotated[int, SIZE]
Pair = Annotated[tuple[int, int], PAIR]
PairFrom0 = Annotated[tuple[int, int], PAIR_FROM_0]
Below1 = Annotated[float, BELOW_1]
Over0 = Annotated[float, OVER_0]
NotNegative = Annotated[float, NOT_NEGATIVE]
UpTo1 = Annotated[float, UP_TO_1]
Truth = Annotated[bool, TRUE_OR_FALSE]
Line = Annotated[str, LINE]
