"""Implements the command line without another command: a run, or the rest of one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..host import signals
from ..inputs.errors import SpecError
from ..terminal.output import write_stderr
from .parsing import (
    Parser,
    add_details,
    add_format,
    number_or_auto,
    percentage,
    whole_number,
    whole_numbers,
)

if TYPE_CHECKING:
    from ..results.comparison import Comparison

DESCRIPTION = (
    "Train the same model in PyTorch, JAX/Flax, Flux.jl and Keras, prove that they do the same "
    "work, and print a table that compares their speed."
)
EPILOG = (
    "Other commands: doctor (what is installed, which devices, where the data is; --check proves "
    "small models), "
    "models (their sizes and sources), "
    "show FILE (the table of a results file), report FILE (a page with charts), "
    "compare FILE FILE (what changed), merge FILE FILE (several machines in one table), "
    "sweep FILE (many runs, on one machine or many), status DIR (what became of them)."
)


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
    from ..terminal.progress import Display
    from .show import print_tables

    if html is not None:
        from ..report import page

        page.check(html)  # before anything is measured
    file = options.get("resume")
    if json := options.get("json"):
        file = options["json"] = named_for_machine(json, options.get("machine"))
    try:
        with signals.raise_on_signal(), Display() as display:
            if "resume" in options:
                comparison = resume(
                    options["resume"], progress=display.begin, on_update=display.update
                )
            else:
                comparison = run(**options, progress=display.begin, on_update=display.update)
    except Unsaved as unsaved:
        print_tables([unsaved.comparison], format, details)
        _write_page([unsaved.comparison], html)
        raise
    except Interrupted as interrupted:
        print_tables([interrupted.comparison], format, details, file)
        if file:
            write_stderr(f"crossbench: to continue this run: --resume {file}")
        _write_page([interrupted.comparison], html)
        raise
    print_tables([comparison], format, details, file)
    _write_page([comparison], html)
    return 0 if comparison.complete else 1


def _write_page(comparisons: list[Comparison], path: Path | None) -> None:
    if path is not None:
        from ..report import page

        page.write(comparisons, path)


def _parser() -> Parser:
    """Return the parser; arguments not given are left out, so crossbench.run's defaults hold."""
    parser = Parser(
        "crossbench",
        description=DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    add(
        "--frameworks",
        metavar="A,B",
        help="for example torch,jax,flux; torch:tuned for a variant, FILE.py:NAME for an adapter "
        "in a file (default: all installed)",
    )
    add(
        "--variants",
        metavar="all|A,B",
        help="variants of the frameworks named without one: those that `doctor` lists, or all "
        "(default: idiomatic)",
    )
    add(
        "--devices",
        metavar="A,B",
        help="cpu,gpu, or gpu:1 for the second GPU (default: cpu, and gpu if there is one)",
    )
    add(
        "--task",
        metavar="train|predict|train,predict",
        help="train on the batches, or predict the logits of each (default: train)",
    )
    add(
        "--model",
        metavar="NAME",
        help="a name that `models` lists, or FILE.py:NAME (default: lenet)",
    )
    add(
        "--data",
        metavar="auto|synthetic|PATH",
        help="auto: the data the model was published with, or synthetic if it is not available; "
        "PATH: a directory or file in the published format (default: auto)",
    )
    add(
        "--rounds",
        type=number_or_auto,
        metavar="N|auto",
        help="number of rounds, each in new processes; auto: six or more, until the ratios are "
        "decided (default: auto)",
    )
    add(
        "--precision",
        type=percentage,
        metavar="P%",
        help="for --rounds auto: relative width of the ratios' intervals (default: 5%%, or clearly "
        "on one side of 1)",
    )
    add(
        "--max-seconds",
        type=float,
        metavar="N",
        help="time limit of --rounds auto (default: 60 a row) and of a target (default: 600)",
    )
    add("--epochs", type=whole_number, metavar="N", help="steady epochs per round (default: 1)")
    add(
        "--batch-size",
        type=whole_numbers,
        metavar="N,M",
        help="examples per step (default: the model's)",
    )
    add(
        "--batches",
        type=whole_number,
        metavar="N",
        help="batches per epoch, at every batch size (default: the model's own, mostly all)",
    )
    add(
        "--examples",
        type=whole_number,
        metavar="N",
        help="examples per epoch, at every batch size: in place of --batches",
    )
    add(
        "--seed",
        type=whole_number,
        metavar="N",
        help="seed of the weights and of synthetic data (default: 0)",
    )
    add("--threads", type=whole_numbers, metavar="N,M", help="CPU threads (default: all CPUs)")
    add("--baseline", metavar="A", help="framework to compare with (default: the fastest)")
    add(
        "--price",
        metavar="P/h",
        help="price of an hour: 0.745/h, cpu=0.17/h,gpu=0.745/h, or FILE.toml:MACHINE",
    )
    add(
        "--target-accuracy",
        type=percentage,
        metavar="P%",
        help="after the rounds, measure how long training takes to reach this test accuracy",
    )
    add(
        "--target-loss",
        type=float,
        metavar="L",
        help="the same for the loss of the test examples, as for a language model",
    )
    add(
        "--trace-memory",
        action="store_true",
        help="after the rounds, measure how much memory an epoch allocates in total",
    )
    add(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="limit for the start of a worker process, and for a round (default: 600)",
    )
    add(
        "--machine",
        metavar="NAME",
        help="name of this machine in the tables (default: its processor's name)",
    )
    add_format(parser)
    add_details(parser)
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
