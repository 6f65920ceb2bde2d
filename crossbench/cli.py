"""The command line: `python -m crossbench`, and `python -m crossbench doctor`.

Exit status: 0, all that was asked for ran and agreed; 1, something in the table did not;
2, nothing was run: wrong arguments or a file that cannot be used; 130, Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from . import __version__
from .errors import CrossbenchError

DESCRIPTION = (
    "Train the same model in PyTorch, JAX/Flax and Flux.jl, prove that they do the same work, "
    "and print a table that compares them."
)
EPILOG = "python -m crossbench doctor: what is installed, which devices, and where the data is"


class Parser(argparse.ArgumentParser):
    """Wrong arguments get one line, and exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"crossbench: {message} (--help shows the arguments)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the output."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["doctor"]:
            return doctor(words[1:])
        return compare(words)
    except CrossbenchError as error:
        print(f"crossbench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("crossbench: interrupted; all workers are ended", file=sys.stderr)
        return 130


def doctor(words: list[str]) -> int:
    parser = Parser("crossbench doctor", description="Say in one screen what is ready to run.")
    parser.parse_args(words)
    from .doctor import report

    print(report())
    return 0


def compare(words: list[str]) -> int:
    asked = vars(_parser().parse_args(words))
    file: Path | None = asked.pop("json")
    from .benchmark import run
    from .progress import ProgressLine
    from .report.table import table
    from .results.comparison import claim

    if file:
        claim(file)
    try:
        with ProgressLine() as progress:
            comparison = run(**asked, progress=progress)
        if file:
            file.write_bytes(comparison.encode())
    except BaseException:
        if file:
            file.unlink()
        raise
    print(table(comparison))
    return 0 if comparison.complete else 1


def _parser() -> Parser:
    parser = Parser("crossbench", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False)
    add = parser.add_argument
    add("--frameworks", metavar="A,B", help="such as torch,jax,flux (default: all installed)")
    add("--devices", metavar="A,B", help="cpu,gpu (default: cpu, and gpu where there is one)")
    add("--model", default="lenet", help="which model (default: lenet)")
    add(
        "--data",
        default="auto",
        metavar="auto|synthetic|DIR",
        help="auto: CIFAR-10, or synthetic pictures where it cannot be had; "
        "DIR: the files of its binary version (default: auto)",
    )
    add("--rounds", type=int, default=3, metavar="N", help="after the first round (default: 3)")
    add("--epochs", type=int, default=1, metavar="N", help="of each round (default: 1)")
    add("--batch-size", type=int, metavar="N", help="images a step (default: the model's)")
    add("--seed", type=int, default=0, metavar="N", help="of the weights (default: 0)")
    add("--threads", type=int, metavar="N", help="CPU threads (default: all CPUs)")
    add(
        "--timeout",
        type=float,
        default=600,
        metavar="SECONDS",
        help="that a start or a round may take (default: 600)",
    )
    add("--json", type=Path, metavar="FILE", help="write everything measured to a new file")
    add("--version", action="version", version=f"crossbench {__version__}")
    return parser
