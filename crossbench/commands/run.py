"""Implements the command line without another command: a run, or the rest of one."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..arguments import ARGUMENTS
from ..host import signals
from ..inputs.errors import SpecError
from ..terminal.output import write_stderr
from ..version import __version__
from . import NAMES
from .parsing import Parser, add_argument, add_details, add_format

DESCRIPTION = (
    "Train the same model in PyTorch, JAX/Flax, Flux.jl, Lux.jl and Keras, prove that they do the "
    "same work, and print a table that compares their speed."
)
EPILOG = "Other commands: " + ", ".join(f"{name} {what}" for name, what in NAMES.items()) + "."


def main(arguments: list[str]) -> int:
    """Run or resume a comparison, print its table, and return the exit status."""
    options = vars(_parser().parse_args(arguments))
    format, details, html = (options.pop(name, None) for name in ("format", "details", "html"))
    if "resume" in options and len(options) > 1:
        raise SpecError(
            "--resume takes all settings from its file: remove the arguments other than --format, "
            "--details and --html"
        )
    # --help and wrong arguments are answered before these slow imports
    from ..benchmark import Interrupted, Unsaved, resume, run
    from ..host.machine import named_for_machine
    from ..report import page
    from ..terminal.progress import Display
    from .show import print_tables

    if html is not None:
        page.check(html)  # before anything is measured
    file = options.get("resume")
    if json := options.get("json"):
        file = options["json"] = named_for_machine(json, options.get("machine"))
    stopped: Unsaved | Interrupted | None = None
    try:
        with signals.raise_on_signal(), Display() as display:
            if "resume" in options:
                comparison = resume(
                    options["resume"], progress=display.begin, on_update=display.update
                )
            else:
                comparison = run(**options, progress=display.begin, on_update=display.update)
    except (Unsaved, Interrupted) as error:
        comparison, stopped = error.comparison, error
    saved = None if isinstance(stopped, Unsaved) else file
    print_tables([comparison], format, details, saved)
    if isinstance(stopped, Interrupted) and file:
        write_stderr(f"crossbench: to continue this run: --resume {file}")
    if html is not None:
        page.write([comparison], html)
    if stopped:
        raise stopped
    return 0 if comparison.complete else 1


def _parser() -> Parser:
    """Return the parser; arguments not given are left out, so crossbench.run's defaults hold."""
    parser = Parser(
        "crossbench",
        description=DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for name, argument in ARGUMENTS.items():
        add_argument(parser, name, argument)
    add_format(parser)
    add_details(parser)
    add = parser.add_argument
    add("--html", type=Path, metavar="FILE", help="new page with charts: one file, no network")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="new results file, written after every round; {machine} becomes this machine's name",
    )
    add(
        "--resume",
        type=Path,
        metavar="FILE",
        help="continue an interrupted run from its results file",
    )
    add("--version", action="version", version=f"crossbench {__version__}")
    return parser
