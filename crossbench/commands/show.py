"""Implements `show`: the tables of results files."""

from __future__ import annotations

import sys
from pathlib import Path

from ..inputs.errors import OutputError, SpecError
from ..report import Format
from ..report.formats import tables
from ..results.comparison import Comparison, load
from ..terminal.output import takes_colour, terminal_width, write_stderr, write_stdout
from .parsing import add_details, add_format, files_parser


def main(arguments: list[str]) -> int:
    parser = files_parser("show", "Show the table of each results file.")
    add_format(parser)
    add_details(parser)
    options = parser.parse_args(arguments)
    print_tables([load(file) for file in options.files], options.format, options.details)
    return 0


def print_tables(
    comparisons: list[Comparison], format: Format, details: bool, file: Path | None = None
) -> None:
    """Print the tables; OutputError if that fails and there is no results file.

    file: the results file, if there is one.
    """
    width, colour = terminal_width(sys.stdout), takes_colour(sys.stdout)
    try:
        write_stdout(tables(comparisons, details, format, width, colour))
    except OutputError as error:
        if file is None:
            raise
        write_stderr(f"crossbench: {error}: the results are in {file}")


def load_several(files: list[Path]) -> list[Comparison]:
    """Load at least two results files."""
    if len(files) < 2:
        raise SpecError("name at least two results files")
    return [load(file) for file in files]
