"""Implements `script`: programs of a layer, each in one framework alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..arguments import ARGUMENTS
from ..programs import Program, script
from ..report.formatting import number
from ..terminal.output import write_stderr, write_stdout
from .parsing import Parser, add_argument

DESCRIPTION = (
    "Write a program for each framework that times a layer, the loss or the optimizer of a model "
    "in that framework alone, to put into an issue. From a results file of a run with --layers: "
    "the part that makes each row slower than the fastest one."
)


def main(arguments: list[str]) -> int:
    """Write the programs, and print a line for each; return the exit status."""
    options = vars(_parser().parse_args(arguments))
    programs = script(**options, progress=lambda line: write_stderr(f"crossbench: {line}"))
    write_stdout("\n".join(map(_line, programs)))
    return 0


def _line(program: Program) -> str:
    line = (
        f"{program.path}: {program.part} of {program.model} in {program.title}, batch size "
        f"{program.batch_size:,}"
    )
    if program.seconds is None:
        return line
    return f"{line}; {number(1e3 * program.seconds)} ms in the run"


def _parser() -> Parser:
    """Return the parser; arguments not given are left out, so crossbench.script's defaults hold."""
    parser = Parser(
        "crossbench script",
        description=DESCRIPTION,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    add(
        "results",
        nargs="?",
        type=Path,
        default=None,
        metavar="FILE",
        help="results file, which gives the model, the frameworks and the batch size",
    )
    for name in ("model", "frameworks", "batch_size"):
        add_argument(parser, name, ARGUMENTS[name])
    add(
        "--layer",
        metavar="NAME",
        help="layer by its name in the model, such as conv1, or loss or optimizer; with a results "
        "file of a run with --layers, by default what makes rows slow",
    )
    add("--out", type=Path, metavar="DIR", help="folder of the new files (default: this one)")
    return parser
