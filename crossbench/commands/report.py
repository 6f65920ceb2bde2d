"""Implements `report`: the page of one results file or several."""

from __future__ import annotations

from pathlib import Path

from ..report import page
from ..results.comparison import load
from .parsing import files_parser


def main(arguments: list[str]) -> int:
    parser = files_parser(
        "report", "Write a page with charts of results files: one file that needs no network."
    )
    parser.add_argument("--html", type=Path, metavar="OUT", required=True, help="the new page")
    options = parser.parse_args(arguments)
    page.check(options.html)
    page.write([load(file) for file in options.files], options.html)
    return 0
