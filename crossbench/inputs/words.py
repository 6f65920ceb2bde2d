"""Reads the values that a command line's words mean, for argparse: numbers and fractions."""

from __future__ import annotations

import math
import reprlib
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def whole_number(word: str) -> int:
    return _convert(int, word, "write a whole number")


def number_or_auto(word: str) -> int | str:
    return word if word == "auto" else _convert(int, word, "write a whole number or auto")


def whole_numbers(word: str) -> list[int]:
    """Return the whole numbers of an argument such as "1,2,4"."""
    return _convert(
        lambda word: [int(number) for number in word.split(",")],
        word,
        "write a whole number, or several as 1,2,4",
    )


def percentage(word: str) -> float:
    """Return the fraction that "5%" or "0.05" means; refuse a bare 1 or 5, which is ambiguous."""
    return _convert(_fraction, word, "write 5% or 0.05")


def _fraction(word: str) -> float:
    value = float(word.removesuffix("%"))
    if not 0 < value < math.inf or (value >= 1 and not word.endswith("%")):
        raise ValueError
    return value / 100 if word.endswith("%") else value


def _convert(convert: Callable[[str], T], word: str, hint: str) -> T:
    """Return convert(word); if that raises ValueError, an argparse error that ends in the hint."""
    try:
        return convert(word)
    except ValueError:
        raise ArgumentTypeError(f"{reprlib.repr(word)}: {hint}") from None
