"""Implements `script`: the programs of rows, each in its framework alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..arguments import ARGUMENTS
from ..programs import Program, script
from ..report.formatting import number
from ..terminal.output import write_stderr, write_stdout
from .parsing import Parser, add_argument

DESCRIPTION = (
    "Write the program of each row: it trains the model in one framework alone, as its users write "
    "it, from the row's initial weights. With --layer it times that layer alone, to put into an "
    "issue."
)
SHARED = ["variants", "model", "input", "data", "batch_size", "batches", "examples"]
SHARED += ["threads", "seed"]
"""The arguments of a run that decide what a program does, beside frameworks and devices."""


def main(arguments: list[str]) -> int:
    """Write the programs, and print a line for each file; return the exit status."""
    options = vars(_parser().parse_args(arguments))
    programs = script(**options, progress=lambda line: write_stderr(f"crossbench: {line}"))
    arrays = dict.fromkeys(path for program in programs for path in program.reads)
    write_stdout("\n".join([*map(_line, programs), *map(_size, arrays)]))
    return 0


def _line(program: Program) -> str:
    if program.part is None:
        batches = f"{program.batches:,} batches of {program.batch_size:,}"
        lines = len(program.source.splitlines())
        return f"{program.path}: {program.model} in {program.title}, {batches}; {lines} lines"
    what = f"what is before {program.part}" if program.without_part else program.part
    line = (
        f"{program.path}: {what} of {program.model} in {program.title}, batch size "
        f"{program.batch_size:,}"
    )
    if program.seconds is None:
        return line
    return f"{line}; it added {number(1e3 * program.seconds)} ms in the run"


def _size(path: Path) -> str:
    what = "initial weights" if path.name.startswith("weights") else "examples"
    return f"{path}: {what}; {number(path.stat().st_size / 1e6)} MB"


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
        help="results file, which gives everything but the layer: a program for each row",
    )
    for name in ("frameworks", "devices", *SHARED):
        add_argument(parser, name, ARGUMENTS[name])
    add(
        "--layer",
        metavar="NAME",
        help="time a layer by its name in the model, such as conv1, or loss or optimizer; slowest, "
        "with the results file of a run with --layers: what makes each row slower than the fastest",
    )
    add(
        "--ran",
        action="store_true",
        help="write what the rows of FILE ran, as it keeps it: without data, weights and loop",
    )
    add("--out", type=Path, metavar="DIR", help="folder of the new files (default: this one)")
    add("--force", action="store_true", help="overwrite files that exist")
    return parser
