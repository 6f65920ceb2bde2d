"""Checks values against rules: the fields of model descriptions and the arguments of a run.

A description (a layer, an optimizer, a model, a data source) is a frozen dataclass that inherits
from Checked; its annotations name the rules: `features: Size`.
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

from .errors import CrossbenchError, SpecError
from .printable import printable

LARGEST = 2**31 - 1
"""The largest 32-bit index."""


@dataclass(frozen=True)
class Rule:
    """Says which values are allowed, and checks one.

    words: the allowed values, to follow "must be" in a message. accept: returns the value
        converted to a built-in Python type; raises TypeError, ValueError or OverflowError if it is
        not allowed.
    """

    words: str
    accept: Callable[[Any], Any]

    def check(self, name: str, value: Any) -> Any:
        """Return the converted value; SpecError says what is allowed and what was given."""
        try:
            return self.accept(value)
        except (TypeError, ValueError, OverflowError):
            raise SpecError(f"{name} must be {self.words}, not {shown(value)}") from None


class Checked:
    """Checks the fields of a frozen dataclass that inherits from it, when an instance is made."""

    def __post_init__(self) -> None:
        """Convert each field by its rule; SpecError for the first one that is not allowed."""
        kind: type = type(self)
        for name, rule in _rules(kind).items():
            value = rule.check(f"{kind.__name__}: {name}", getattr(self, name))
            object.__setattr__(self, name, value)


@cache
def _rules(kind: type) -> dict[str, Rule]:
    """Return the rules by field name, for the fields whose annotation holds one."""
    return {
        name: rule
        for name, hint in get_type_hints(kind, include_extras=True).items()
        for rule in getattr(hint, "__metadata__", ())
        if isinstance(rule, Rule)
    }


def shown(value: Any) -> str:
    """Return the value's repr, shortened to one line, for a message."""
    with suppress(Exception):  # repr may raise: of an int of over 4,300 digits it does
        return printable(_SHORT_REPR.repr(value))
    return f"a value of type {type(value).__name__}"


def short_error(error: BaseException) -> str:
    """Return the error in one line: its type, unless it is crossbench's own, and its message."""
    kind = "" if isinstance(error, CrossbenchError) else type(error).__name__
    text = ""
    with suppress(Exception):  # a __str__ may raise
        text = printable(str(error))
    return ": ".join(part for part in (kind, text) if part)


_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 80


def integer(least: int, most: int = LARGEST) -> Rule:
    """Return the rule for integers from least to most, NumPy's too; True and 2.0 are refused."""

    def accept(value: Any) -> int:
        number = int(operator.index(value))
        _require(not isinstance(value, bool) and least <= number <= most)
        return number

    return Rule(f"a whole number from {least} to {most:,}", accept)


def number(words: str, allowed: Callable[[float], bool]) -> Rule:
    """Return the rule for real numbers, NumPy's too; strings and True are refused."""

    def accept(value: Any) -> float:
        _require(isinstance(value, Real) and not isinstance(value, bool) and allowed(float(value)))
        return float(value)

    return Rule(words, accept)


def instance_of(words: str, kind: Any) -> Rule:
    """Return the rule for instances of the class `kind`; words: how a message names them."""

    def accept(value: Any) -> Any:
        _require(isinstance(value, kind))
        return value

    return Rule(words, accept)


def tuple_of(words: str, rule: Rule, counts: range) -> Rule:
    """Return the rule for tuples of allowed lengths; lists and arrays become tuples.

    rule: of each value. counts: the allowed lengths.
    """

    def accept(values: Any) -> tuple[Any, ...]:
        listed = values.tolist() if hasattr(values, "tolist") else values
        _require(isinstance(listed, tuple | list) and len(listed) in counts)
        return tuple(rule.accept(value) for value in listed)

    return Rule(words, accept)


def one_of(*words: str) -> Rule:
    """Return the rule for these words."""

    def accept(value: Any) -> str:
        _require(isinstance(value, str) and value in words)
        return str(value)

    return Rule(" or ".join(map(repr, words)), accept)


def optional(rule: Rule) -> Rule:
    """Return a rule that also allows None."""
    return Rule(
        f"None or {rule.words}", lambda value: None if value is None else rule.accept(value)
    )


def _true_or_false(value: Any) -> bool:
    found = value.item() if hasattr(value, "item") else value  # NumPy's True
    _require(isinstance(found, bool))
    return bool(found)


def _sides(value: Any) -> int | tuple[int, int]:
    """Return two equal numbers as one."""
    before, after = PAIR_FROM_0.accept(value) if hasattr(value, "__len__") else (value, value)
    return FROM_0.accept(before) if before == after else (before, after)


def _line(value: Any) -> str:
    _require(isinstance(value, str) and value.isprintable() and not value.isspace() and value)
    return str(value)


def _require(allowed: Any) -> None:
    if not allowed:
        raise ValueError


SIZE, FROM_0 = integer(1), integer(0)
BELOW_1 = number("a number from 0 to below 1", lambda value: 0 <= value < 1)
OVER_0 = number("a finite number over 0", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = number("a finite number of at least 0", lambda value: 0 <= value < math.inf)
FINITE = number("a finite number", math.isfinite)
UP_TO_1 = number("a number from 0 to 1", lambda value: 0 <= value <= 1)
TRUE_OR_FALSE = Rule("True or False", _true_or_false)
LINE = Rule("text in one line", _line)
PAIR = tuple_of(f"two whole numbers, each from 1 to {LARGEST:,}", SIZE, range(2, 3))
PAIR_FROM_0 = tuple_of(f"two whole numbers, each from 0 to {LARGEST:,}", FROM_0, range(2, 3))
SIDES = Rule(f"a whole number from 0 to {LARGEST:,}, or two: before and after", _sides)
PADDING = tuple_of("two whole numbers from 0, of both sides, or pairs of them", SIDES, range(2, 3))
SHAPE = tuple_of(f"one, two or three whole numbers, each from 1 to {LARGEST:,}", SIZE, range(1, 4))

Size = Annotated[int, SIZE]
Pair = Annotated[tuple[int, int], PAIR]
PairFrom0 = Annotated[tuple[int, int], PAIR_FROM_0]
Sides = Annotated[int | tuple[int, int], SIDES]
"""The padding of an axis: on both sides, or (before, after)."""
Padding = Annotated[tuple[int | tuple[int, int], int | tuple[int, int]], PADDING]
"""The padding of a picture: (vertical, horizontal), each as Sides."""
Below1 = Annotated[float, BELOW_1]
Over0 = Annotated[float, OVER_0]
NotNegative = Annotated[float, NOT_NEGATIVE]
OptionalStd = Annotated[float | None, optional(NOT_NEGATIVE)]
UpTo1 = Annotated[float, UP_TO_1]
Boolean = Annotated[bool, TRUE_OR_FALSE]
Line = Annotated[str, LINE]
