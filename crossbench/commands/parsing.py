"""Parses the words of a command line: the parser and what several commands share."""

from __future__ import annotations

import argparse
import math
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from ..report import FORMATS

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """Parses arguments; reports wrong ones in one line, with exit status 2."""

    def error(self, message: str) -> NoReturn:
        message = " ".join(message.split())  # an argument may hold line breaks
        self.exit(2, f"crossbench: {message} (--help shows the arguments)\n")


def files_parser(command: str, description: str) -> Parser:
    """Return the parser of a command that takes results files."""
    parser = Parser(f"crossbench {command}", description=description, allow_abbrev=False)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    return parser


def add_format(parser: Parser) -> None:
    """Add --format."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        metavar="|".join(FORMATS),
        help="csv and json have plain figures, with units in their names (default: text)",
    )


def add_details(parser: Parser) -> None:
    """Add --details."""
    parser.add_argument(
        "--details",
        action="store_true",
        default=False,
        help="show all columns, versions, peaks, notes and the legend",
    )


def whole_number(word: str) -> int:
    """Return the whole number that an argument gives."""
    return _convert(int, word, "write a whole number")


def number_or_auto(word: str) -> int | str:
    """Return a whole number, or "auto"."""
    return word if word == "auto" else _convert(int, word, "write a whole number or auto")


def whole_numbers(word: str) -> list[int]:
    """Return the whole numbers of an argument such as "1,2,4"."""
    return _convert(
        lambda word: [int(number) for number in word.split(",")],
        word,
        "write a whole number, or several as 1,2,4",
    )


def percentage(word: str) -> float:
    """Return the fraction that "5%" or "0.05" means; refuse a bare 5, which is ambiguous."""
    return _convert(_fraction, word, "write 5% or 0.05")


def _fraction(word: str) -> float:
    value = float(word.removesuffix("%"))
    if not 0 < value < math.inf or (value > 1 and not word.endswith("%")):
        raise ValueError
    return value / 100 if word.endswith("%") else value


def _convert(convert: Callable[[str], T], word: str, hint: str) -> T:
    """Return convert(word); if that raises ValueError, an argparse error that ends in the hint."""
    try:
        return convert(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{reprlib.repr(word)}: {hint}") from None
