"""Implements `merge`: the results files of several machines in one table."""

from __future__ import annotations

from ..report import formats
from ..terminal.output import write_stdout
from .parsing import add_format, files_parser
from .show import load_several


def main(arguments: list[str]) -> int:
    parser = files_parser("merge", "Show the results files of several machines in one table.")
    add_format(parser)
    options = parser.parse_args(arguments)
    write_stdout(formats.merge(load_several(options.files), options.format))
    return 0
