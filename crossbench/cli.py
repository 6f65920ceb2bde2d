"""Implements the command line: `python -m crossbench`, its other commands.

Exit status:
0: everything requested ran and agreed.
1: something in the table or in doctor --check failed or disagreed, or compare --fail-above found
   a slower cell.
2: wrong arguments or an unusable file, and nothing was run; or the results could not be written to
   their file, or, without a file, not printed.
130, 143, 129: Ctrl-C, SIGTERM, SIGHUP.
A closed pipe (`| head`) does not change the status.
"""

from __future__ import annotations

import argparse
import math
import os
import reprlib
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from . import __version__, signals
from .errors import CrossbenchError, OutputError, SpecError
from .output import (
    standard_streams,
    takes_colour,
    terminal_width,
    write_stderr,
    write_stdout,
)
from .printable import printable
from .report import FORMATS, Format

if TYPE_CHECKING:
    from .results.comparison import Comparison

T = TypeVar("T")

TLS_FILES = {
    "tls_ca_file": "the certificate authority's certificate",
    "tls_cert": "this client's certificate",
    "tls_key": "its key",
}

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


class Parser(argparse.ArgumentParser):
    """Parses arguments; reports wrong ones in one line, with exit status 2."""

    def error(self, message: str) -> NoReturn:
        message = " ".join(message.split())  # an argument may hold line breaks
        self.exit(2, f"crossbench: {message} (--help shows the arguments)\n")


@standard_streams()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and return the exit status.

    Without `arguments`, take those of the process, and let SIGINT, SIGTERM and SIGHUP stop it.
    """
    if arguments is None:
        signals.exit_at_once()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        command = COMMANDS.get(words[0]) if words else None
        return command(words[1:]) if command else benchmark(words)
    except CrossbenchError as error:
        write_stderr(f"crossbench: {printable(str(error), 2000)}")
        return 2
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, signals.Stopped) else signals.STOP_SIGNALS[0]
        write_stderr(signals.exit_message(number))
        if arguments is None:
            _leave(128 + number)
        return 128 + number


def _leave(status: int) -> NoReturn:
    """End the process now: Python would wait for a parity proof still running in a thread."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the stream is closed, or nobody reads it
            stream.flush()
    os._exit(status)


def doctor(arguments: list[str]) -> int:
    """Print which frameworks, devices and data are ready to use; with --check prove small models,
    and return 1 where one does not agree.
    """
    parser = Parser(
        "crossbench doctor",
        description="Show which frameworks, devices and data are ready to use.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--check",
        action="store_true",
        help="prove two small models in each framework and variant on each device, which takes a "
        "minute, and exit with status 1 if one does not agree",
    )
    add("--frameworks", metavar="A,B", help="of the check, as for a run (default: all installed)")
    add(
        "--devices",
        metavar="A,B",
        help="of the check, as for a run (default: cpu, and gpu if there is one)",
    )
    add(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="limit for each answer of a worker process of the check (default: 300)",
    )
    add(
        "--format",
        choices=("text", "json"),
        default="text",
        metavar="text|json",
        help="json is for an issue: it has no paths and no names of users (default: text)",
    )
    options = parser.parse_args(arguments)
    from . import doctor

    chosen = (options.frameworks, options.devices, options.timeout)
    if not options.check:
        if any(argument is not None for argument in chosen):
            raise SpecError("--frameworks, --devices and --timeout are for a check: add --check")
        write_stdout(doctor.as_json() if options.format == "json" else doctor.report())
        return 0
    from .progress import Display

    with signals.raise_on_signal(), Display() as display:
        verdicts = doctor.check(*chosen, progress=display.begin)
    as_json = options.format == "json"
    write_stdout(doctor.as_json(verdicts) if as_json else doctor.verdict_lines(verdicts))
    agree = any(verdict.status == "agrees" for verdict in verdicts)
    return int(not agree or any(verdict.is_wrong for verdict in verdicts))


def models(arguments: list[str]) -> int:
    """Print the models that --model takes by name."""
    parser = Parser("crossbench models", description="List the models that --model takes.")
    parser.parse_args(arguments)
    from .catalogue import catalogue

    write_stdout(catalogue())
    return 0


def compare(arguments: list[str]) -> int:
    """Print what changed between results files; return 1 if --fail-above finds a slower cell."""
    parser = _files_parser(
        "compare", "Show what changed from the first results file to each of the others."
    )
    parser.add_argument(
        "--fail-above",
        type=percentage,
        metavar="P%",
        help="exit with status 1 if a cell is slower by more than P%%, or cannot be compared",
    )
    _add_format(parser)
    options = parser.parse_args(arguments)
    comparisons = _load_all(options.files)
    from .report import formats
    from .results.several_runs import changes, check_same_work

    check_same_work(comparisons)

    write_stdout(formats.changes(comparisons, options.format))
    found = [change for other in comparisons[1:] for change in changes(comparisons[0], other)]
    return int(options.fail_above is not None and any(c.fails(options.fail_above) for c in found))


def merge(arguments: list[str]) -> int:
    """Print the results files of several machines in one table."""
    parser = _files_parser("merge", "Show the results files of several machines in one table.")
    _add_format(parser)
    options = parser.parse_args(arguments)
    from .report import formats

    write_stdout(formats.merge(_load_all(options.files), options.format))
    return 0


def show(arguments: list[str]) -> int:
    """Print the table of a results file, or of each of several."""
    parser = _files_parser("show", "Show the table of each results file.")
    _add_format(parser)
    _add_details(parser)
    options = parser.parse_args(arguments)
    from .results.comparison import load

    _print([load(file) for file in options.files], options.format, options.details)
    return 0


def report(arguments: list[str]) -> int:
    """Write the page of one results file or several."""
    parser = _files_parser(
        "report", "Write a page with charts of results files: one file that needs no network."
    )
    parser.add_argument("--html", type=Path, metavar="OUT", required=True, help="the new page")
    options = parser.parse_args(arguments)
    from .report import page
    from .results.comparison import load

    page.check(options.html)
    page.write([load(file) for file in options.files], options.html)
    return 0


def _files_parser(command: str, description: str) -> Parser:
    """Return the parser of a command that takes results files."""
    parser = Parser(f"crossbench {command}", description=description, allow_abbrev=False)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    return parser


def _add_format(parser: Parser) -> None:
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        metavar="|".join(FORMATS),
        help="csv and json have plain figures, with units in their names (default: text)",
    )


def _add_details(parser: Parser) -> None:
    parser.add_argument(
        "--details",
        action="store_true",
        default=False,
        help="show all columns, versions, peaks, notes and the legend",
    )


def _load_all(files: list[Path]) -> list[Comparison]:
    """Load at least two results files."""
    from .results.comparison import load

    if len(files) < 2:
        raise SpecError("name at least two results files")
    return [load(file) for file in files]


def sweep(arguments: list[str]) -> int:
    """Run the jobs of a sweep's file; return 1 if one of them failed or is incomplete."""
    parser = Parser(
        "crossbench sweep",
        description="Run every comparison that a TOML file asks for, here or on a Dask scheduler's "
        "machines, and keep each results file. The same command goes on where it was stopped.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "file",
        type=Path,
        metavar="FILE.toml",
        help="arguments of a run by name; a list means each of its values",
    )
    add("--out", required=True, metavar="DIR", help="folder of the results files, or its URL")
    add("--dask", metavar="ADDRESS", help="a Dask scheduler, as tcp://HOST:8786 (default: here)")
    for name, what in TLS_FILES.items():
        add(f"--{name.replace('_', '-')}", metavar="FILE", help=f"for --dask tls://: {what}")
    add("--keep-going", action="store_true", help="run the others where no machine can run a job")
    options = parser.parse_args(arguments)
    from .sweeps import display, jobs, run

    asked = jobs.read(options.file)
    files = {name: file for name in TLS_FILES if (file := getattr(options, name))}
    if files and not options.dask:
        raise SpecError(
            "certificates are for a Dask scheduler: name it with --dask tls://HOST:8786"
        )
    with signals.raise_on_signal(), display.SweepDisplay() as shown:
        tasks = run.sweep(
            [job.arguments for job in asked.jobs],
            options.out,
            run.Scheduler(options.dask, files) if options.dask else None,
            machines=asked.machines,
            workers=asked.workers,
            resources=asked.resources,
            keep_going=options.keep_going,
            progress=shown.begin,
            on_update=shown.update,
        )
    write_stdout(display.counts(tasks))
    return int(any(task.state != "done" for task in tasks))


def status(arguments: list[str]) -> int:
    """Print what became of the jobs of a sweep; return 1 if one failed or is incomplete."""
    parser = Parser("crossbench status", description="Show what became of the jobs of a sweep.")
    parser.add_argument("out", metavar="DIR", help="the folder that sweep has as --out")
    options = parser.parse_args(arguments)
    from .sweeps import display
    from .sweeps.folder import Folder

    folder = Folder(options.out)
    tasks = folder.read_state()
    write_stdout(display.status(tasks, folder.is_held()))
    return int(any(task.state in ("failed", "incomplete") for task in tasks))


def benchmark(arguments: list[str]) -> int:
    """Run or resume a comparison, print its table, and return the exit status."""
    options = vars(_parser().parse_args(arguments))
    format, details, html = (options.pop(name, None) for name in ("format", "details", "html"))
    if "resume" in options and len(options) > 1:
        raise SpecError(
            "--resume takes all settings from its file: remove the arguments other than --format, "
            "--details and --html"
        )
    if html is not None:
        from .report import page

        page.check(html)  # before anything is measured
    from .benchmark import Interrupted, Unsaved, resume, run
    from .machine import named_for_machine
    from .progress import Display

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
        _print([unsaved.comparison], format, details)
        _write_page([unsaved.comparison], html)
        raise
    except Interrupted as interrupted:
        _print([interrupted.comparison], format, details, file)
        if file:
            write_stderr(f"crossbench: to continue this run: --resume {file}")
        _write_page([interrupted.comparison], html)
        raise
    _print([comparison], format, details, file)
    _write_page([comparison], html)
    return 0 if comparison.complete else 1


def _print(
    comparisons: list[Comparison], format: Format, details: bool, file: Path | None = None
) -> None:
    """Print the tables; OutputError if that fails and there is no results file.

    file: the results file, if there is one.
    """
    from .report.formats import tables

    width, colour = terminal_width(sys.stdout), takes_colour(sys.stdout)
    try:
        write_stdout(tables(comparisons, details, format, width, colour))
    except OutputError as error:
        if file is None:
            raise
        write_stderr(f"crossbench: {error}: the results are in {file}")


def _write_page(comparisons: list[Comparison], path: Path | None) -> None:
    if path is not None:
        from .report import page

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
    _add_format(parser)
    _add_details(parser)
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


COMMANDS = {
    "doctor": doctor,
    "models": models,
    "show": show,
    "report": report,
    "compare": compare,
    "merge": merge,
    "sweep": sweep,
    "status": status,
}


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
