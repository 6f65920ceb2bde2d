"""Implements `compare`: what changed from one results file to others."""

from __future__ import annotations

from ..inputs.words import percentage
from ..report import formats
from ..results.several_runs import changes, check_same_work
from ..terminal.output import write_stdout
from .parsing import add_format, files_parser
from .show import load_several


def main(arguments: list[str]) -> int:
    """Print what changed between results files; return 1 if --fail-above finds a slower cell."""
    parser = files_parser(
        "compare", "Show what changed from the first results file to each of the others."
    )
    parser.add_argument(
        "--fail-above",
        type=percentage,
        metavar="P%",
        help="exit with status 1 if a cell is slower by more than P%%, or cannot be compared",
    )
    add_format(parser)
    options = parser.parse_args(arguments)
    comparisons = load_several(options.files)
    check_same_work(comparisons)
    write_stdout(formats.changes(comparisons, options.format))
    found = [change for other in comparisons[1:] for change in changes(comparisons[0], other)]
    return int(options.fail_above is not None and any(c.fails(options.fail_above) for c in found))
