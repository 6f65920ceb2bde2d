"""Parses the words of a command line: the parser and what several commands share."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NoReturn

from ..arguments import Argument
from ..report import FORMATS
from ..terminal.output import write_stderr, write_stdout


class Parser(argparse.ArgumentParser):
    """Parses arguments; reports wrong ones in one line, with exit status 2."""

    def error(self, message: str) -> NoReturn:
        message = " ".join(message.split())  # an argument may hold line breaks
        self.exit(2, f"crossbench: {message} (--help shows the arguments)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help or an error as all output is printed: Python 3.11.2 raises an error where
        nobody reads the help.
        """
        write = write_stderr if file is sys.stderr else write_stdout
        write(message.removesuffix("\n"))


def files_parser(command: str, description: str) -> Parser:
    """Return the parser of a command that takes results files."""
    parser = Parser(f"crossbench {command}", description=description, allow_abbrev=False)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    return parser


def add_format(parser: Parser) -> None:
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        metavar="|".join(FORMATS),
        help="csv and json have plain figures, with units in their names (default: text)",
    )


def add_details(parser: Parser) -> None:
    parser.add_argument(
        "--details",
        action="store_true",
        default=False,
        help="show all columns, versions, peaks, notes and the legend",
    )


def add_argument(parser: Parser, name: str, argument: Argument) -> None:
    """Add an argument of a run: one without a word is a switch."""
    flag, meaning = f"--{name.replace('_', '-')}", argument.sentence.replace("%", "%%")
    if argument.word is None:
        parser.add_argument(flag, action="store_true", help=meaning)
    else:
        parser.add_argument(flag, type=argument.read, metavar=argument.word, help=meaning)
