"""Implements `status`: what became of the jobs of a sweep."""

from __future__ import annotations

from ..inputs.errors import ResultsError
from ..sweeps import display
from ..sweeps.folder import STATE_FILE, Folder
from ..terminal.output import write_stdout
from .parsing import Parser


def main(arguments: list[str]) -> int:
    """Print what became of the jobs of a sweep; return 1 if one failed or is incomplete."""
    parser = Parser("crossbench status", description="Show what became of the jobs of a sweep.")
    parser.add_argument("out", metavar="DIR", help="the folder that sweep has as --out")
    folder = Folder(parser.parse_args(arguments).out)
    tasks = folder.read_state()
    if tasks is None:
        raise ResultsError(
            f"{folder.name} is not the folder of a sweep: its file {STATE_FILE} is missing or "
            "damaged"
        )
    write_stdout(display.status(tasks, folder.is_held()))
    return int(any(task.state in ("failed", "incomplete") for task in tasks))
