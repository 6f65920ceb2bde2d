"""The command line: `python -m crossbench`, and its commands doctor, models, compare and merge.

Exit status: 0, all that was asked for ran and agreed; 1, something in the table did not;
2, nothing was run: wrong arguments or a file that cannot be used, or what was measured could not be
written to its file, or shown where it has none; 130, 143 and 129, Ctrl-C, SIGTERM and SIGHUP. A
closed pipe (`| head`) changes none of them.
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
from .output import show, standard_streams, tell
from .words import clean

if TYPE_CHECKING:
    from .results.comparison import Comparison

T = TypeVar("T")

DESCRIPTION = (
    "Train the same model in PyTorch, JAX/Flax and Flux.jl, prove that they do the same work, "
    "and print a table that compares them."
)
EPILOG = (
    "Other commands: doctor (what is installed, which devices, where the data is), "
    "models (their sizes and sources), "
    "compare FILE FILE (what changed), merge FILE FILE (several machines in one table)."
)


class Parser(argparse.ArgumentParser):
    """Wrong arguments get one line, and exit status 2."""

    def error(self, message: str) -> NoReturn:
        message = " ".join(message.split())  # an argument may hold line breaks
        self.exit(2, f"crossbench: {message} (--help shows the arguments)\n")


@standard_streams()
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status, after the output. Without arguments they are the process's, and so
    are the signals that stop it.
    """
    if arguments is None:
        signals.exit_at_once()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        command = COMMANDS.get(words[0]) if words else None
        return command(words[1:]) if command else benchmark(words)
    except CrossbenchError as error:
        tell(f"crossbench: {clean(str(error), 2000)}")
        return 2
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, signals.Stopped) else signals.STOPPING[0]
        tell(signals.line(number))
        if arguments is None:
            _leave(128 + number)
        return 128 + number


def _leave(status: int) -> NoReturn:
    """End the process now: Python would wait for a proof that still computes in a thread."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or nobody reads it
            stream.flush()
    os._exit(status)


def doctor(words: list[str]) -> int:
    parser = Parser("crossbench doctor", description="Say in one screen what is ready to run.")
    parser.parse_args(words)
    from .doctor import report

    show(report())
    return 0


def models(words: list[str]) -> int:
    parser = Parser("crossbench models", description="List the models that --model takes.")
    parser.parse_args(words)
    from .catalogue import catalogue

    show(catalogue())
    return 0


def compare(words: list[str]) -> int:
    parser = Parser(
        "crossbench compare",
        description="Say what changed from the first results file to each of the others.",
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--fail-above",
        type=percentage,
        metavar="P%",
        help="exit with 1 where a cell is slower by more, or cannot be compared",
    )
    asked = parser.parse_args(words)
    comparisons = _load_all(asked.files)
    from .report.across import change_table
    from .results.across import changes

    show(change_table(comparisons))
    found = [change for other in comparisons[1:] for change in changes(comparisons[0], other)]
    return int(asked.fail_above is not None and any(c.fails(asked.fail_above) for c in found))


def merge(words: list[str]) -> int:
    parser = Parser(
        "crossbench merge", description="Put the results files of several machines in one table."
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    comparisons = _load_all(parser.parse_args(words).files)
    from .report.across import merged_table

    show(merged_table(comparisons))
    return 0


def _load_all(files: list[Path]) -> list[Comparison]:
    from .results.across import check_same_work
    from .results.comparison import load

    if len(files) < 2:
        raise SpecError("name at least two results files")
    comparisons = [load(file) for file in files]
    check_same_work(comparisons)
    return comparisons


def benchmark(words: list[str]) -> int:
    asked = vars(_parser().parse_args(words))
    if "resume" in asked and len(asked) > 1:
        raise SpecError("--resume takes all settings from its file: give no other argument")
    from .benchmark import Interrupted, Unsaved, resume, run
    from .progress import ProgressLine

    file = asked.get("resume") or asked.get("json")
    try:
        with signals.raised(), ProgressLine() as progress:
            if "resume" in asked:
                comparison = resume(asked["resume"], progress=progress)
            else:
                comparison = run(**asked, progress=progress)
    except Unsaved as unsaved:
        _show_table(unsaved.comparison)
        raise
    except Interrupted as interrupted:
        _show_table(interrupted.comparison, file)
        if file:
            tell(f"crossbench: --resume {file} goes on from here")
        raise
    _show_table(comparison, file)
    return 0 if comparison.complete else 1


def _show_table(comparison: Comparison, file: Path | None = None) -> None:
    """Print the table; OutputError where it cannot be shown, and no file holds the results."""
    from .report.table import table

    try:
        show(table(comparison))
    except OutputError as error:
        if file is None:
            raise
        tell(f"crossbench: {error}: everything measured is in {file}")


def _parser() -> Parser:
    """What is not given is not in the namespace: the defaults are those of crossbench.run."""
    parser = Parser(
        "crossbench",
        description=DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    add("--frameworks", metavar="A,B", help="such as torch,jax,flux (default: all installed)")
    add(
        "--devices",
        metavar="A,B",
        help="cpu,gpu, or gpu:1 for the second one (default: cpu, and gpu where there is one)",
    )
    add("--model", metavar="NAME", help="of `models`, or FILE.py:NAME (default: lenet)")
    add(
        "--data",
        metavar="auto|synthetic|PATH",
        help="auto: the data the model was published with, or synthetic where it cannot be had; "
        "PATH: a directory or file of it (default: auto)",
    )
    add(
        "--rounds",
        type=number_or_auto,
        metavar="N|auto",
        help="each in new processes; auto: until the ratios are precise (default: 6)",
    )
    add(
        "--precision",
        type=percentage,
        metavar="P%",
        help="for --rounds auto: how narrow the ratios' intervals must be (default: 5%%)",
    )
    add(
        "--max-seconds",
        type=float,
        metavar="N",
        help="for --rounds auto and --target-accuracy: give up then (default: 600)",
    )
    add("--epochs", type=whole_number, metavar="N", help="steady ones of each round (default: 1)")
    add(
        "--batch-size",
        type=whole_number,
        metavar="N",
        help="examples a step (default: the model's)",
    )
    add(
        "--batches",
        type=whole_number,
        metavar="N",
        help="cut an epoch short (default: the model's, all)",
    )
    add("--seed", type=whole_number, metavar="N", help="of the weights (default: 0)")
    add("--threads", type=whole_numbers, metavar="N,M", help="CPU threads (default: all CPUs)")
    add("--baseline", metavar="A", help="the framework to compare with (default: the fastest)")
    add(
        "--price",
        metavar="P/h",
        help="of an hour: 0.745/h, cpu=0.17/h,gpu=0.745/h, or FILE.toml:MACHINE",
    )
    add(
        "--target-accuracy",
        type=percentage,
        metavar="P%",
        help="train on until the test examples reach it, and tell how long it took",
    )
    add(
        "--trace-memory",
        action="store_true",
        help="after the rounds, tell how much memory an epoch allocates, all in all",
    )
    add(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="that a start or a round may take (default: 600)",
    )
    add("--json", type=Path, metavar="FILE", help="a new file for everything measured")
    add("--resume", type=Path, metavar="FILE", help="go on with the interrupted run of a file")
    add("--version", action="version", version=f"crossbench {__version__}")
    return parser


COMMANDS = {"doctor": doctor, "models": models, "compare": compare, "merge": merge}


def whole_number(word: str) -> int:
    return _converted(int, word, "write a whole number")


def number_or_auto(word: str) -> int | str:
    return word if word == "auto" else _converted(int, word, "write a whole number or auto")


def whole_numbers(word: str) -> list[int]:
    return _converted(
        lambda word: [int(number) for number in word.split(",")],
        word,
        "write a whole number, or several as 1,2,4",
    )


def percentage(word: str) -> float:
    """A fraction, from "5%" or "0.05"; a bare 5 is more likely 5 % than 500."""
    return _converted(_fraction, word, "write 5% or 0.05")


def _fraction(word: str) -> float:
    value = float(word.removesuffix("%"))
    if not 0 < value < math.inf or (value > 1 and not word.endswith("%")):
        raise ValueError
    return value / 100 if word.endswith("%") else value


def _converted(convert: Callable[[str], T], word: str, how: str) -> T:
    try:
        return convert(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{reprlib.repr(word)}: {how}") from None
