"""Implements `site`: the static pages of a folder of results files."""

from __future__ import annotations

from ..inputs.printable import printable
from ..sites.build import site
from ..terminal.output import write_stderr, write_stdout
from .parsing import Parser


def main(arguments: list[str]) -> int:
    """Write a site; return 1 if a file of the folder could not be read."""
    parser = Parser(
        "crossbench site",
        description="Write the pages of a folder of results files: who is fastest with which "
        "models, a page for each model, machine and framework, and a table of everything. They "
        "need no network and no server.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("results", metavar="RESULTS", help="folder with results files, or its URL")
    add("--out", required=True, metavar="DIR", help="the new folder of the site")
    add("--force", action="store_true", help="overwrite a site that is there")
    options = parser.parse_args(arguments)
    made = site(
        options.results,
        options.out,
        force=options.force,
        progress=lambda line: write_stderr(f"crossbench: {line}"),
    )
    for name, why in made.unread.items():
        write_stderr(f"crossbench: {printable(f'{name}: {why}')}")
    write_stdout(f"{made.path / 'index.html'}: {made.pages:,} pages of {made.runs:,} runs")
    return int(bool(made.unread))
