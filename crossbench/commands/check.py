"""Implements `check`: whether results files may be published, and copies of them that may."""

from __future__ import annotations

from pathlib import Path

from ..inputs.errors import ResultsError
from ..inputs.printable import printable
from ..results.comparison import load
from ..results.publication import problems, published
from ..terminal.output import write_stdout
from .parsing import files_parser


def main(arguments: list[str]) -> int:
    """Print what is wrong with each file; return 1 if something is."""
    parser = files_parser(
        "check",
        "Check whether results files may be published: their schema, that every row was proved "
        "and has its rounds, versions and a peak that its seconds agree with, and that they hold "
        "no folders, no names of users and hosts.",
    )
    parser.add_argument(
        "--publish",
        type=Path,
        metavar="DIR",
        help="write a copy of each file without folders and names into this folder, packed by "
        "gzip, and check that; to be called on the machine of the run",
    )
    options = parser.parse_args(arguments)
    if options.publish is not None:
        _make(options.publish)
    wrong = 0
    for path in options.files:
        found = _check(path, options.publish)
        wrong += bool(found)
        for line in found or ["may be published"]:
            write_stdout(printable(f"{path}: {line}", 2000))
    return int(wrong > 0)


def _make(folder: Path) -> None:
    """Make the folder for the copies, if there is none; ResultsError where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"{folder} cannot be made: {error.strerror}") from None


def _check(path: Path, folder: Path | None) -> list[str]:
    """Return what is wrong with a file, or with the copy of it that was written."""
    try:
        comparison = load(path)
        if folder is not None:
            comparison = published(comparison)
            comparison.save(folder / f"{path.name.removesuffix('.gz')}.gz", packed=True)
    except ResultsError as error:
        return [str(error).removeprefix(f"{path} ")]
    return problems(comparison)
