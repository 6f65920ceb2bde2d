"""Define Comparison, the result of a run, and read and write its file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from ..inputs.errors import ResultsError
from ..inputs.printable import printable
from . import breakdown, earlier, file
from .parts import PartCost
from .ranking import Ranking
from .rows import Value, as_dict, rows
from .validation import check

SCHEMA = 16
PAGE_RESULTS = re.compile(rb'<script [^>]*class="crossbench-results">(.*?)</script>')
"""Where a page holds the results of a run."""
SECONDS_PER_ROW = 60.0
"""Limit for as many rounds as are needed, by the rows of the table."""
UNREADABLE = (msgspec.MsgspecError, RecursionError, TypeError, ValueError, OverflowError)
"""What msgspec raises for JSON, or for values, that are not a comparison; nesting that is too deep
raises RecursionError."""


def without_data(model: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a model without its source of data, which the data's checksum tells
    apart.
    """
    return {name: value for name, value in model.items() if name != "data"}


@dataclass
class Comparison(Ranking):
    """Hold the result of `crossbench.run`; `crossbench.load` reads the same from a file."""

    def __repr__(self) -> str:
        cells = ", ".join(f"{r.name}: {r.status}" for r in self.results)
        return printable(f"<Comparison of {self.model['name']} ({cells})>")

    def __str__(self) -> str:
        """Return the summary: the deciding columns, who is fastest, parity and the warnings."""
        from .. import table

        return table(self)

    def _repr_html_(self) -> str:
        """Return the summary as HTML: a notebook shows it."""
        from .. import html

        return html(self)

    def rows(self) -> list[dict[str, Value]]:
        """Return a dict of plain figures for each cell, as pandas and polars take them.

        Row lists the names; of an estimate NAME is the median, NAME_low and NAME_high the 95 %
        interval, NAME_minimum and NAME_maximum the extremes.
        """
        return [as_dict(row) for row in rows(self)]

    def part_figures(self, part: PartCost) -> dict[str, breakdown.PartFigures]:
        """Return what a part of a training step takes in each cell, by the cell's name."""
        return breakdown.part_figures(self, part)

    @property
    def max_round_seconds(self) -> float:
        """Return the limit for as many rounds as are needed."""
        rows = sum(result.status != "unavailable" for result in self.results)
        return self.settings.max_seconds or SECONDS_PER_ROW * rows

    def save(self, path: str | os.PathLike[str], packed: bool = False) -> None:
        """Write a new file; ResultsError where it exists already or cannot be written.

        packed: by gzip, which every command reads as well.
        """
        content = file.packed(self.encode()) if packed else self.encode()
        with file.new_file(path) as write:
            write(content)

    def replace(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically: whatever happens, it holds the old comparison or this one."""
        file.replace(path, self.encode())

    def encode(self) -> bytes:
        """Return the file's content, JSON; ResultsError for what `load` would refuse."""
        try:
            content = msgspec.json.format(msgspec.json.encode(self), indent=1)
            _decode(content)
        except UNREADABLE as error:
            raise ResultsError(f"the results cannot be written: {printable(str(error))}") from None
        return content


def load(path: str | os.PathLike[str]) -> Comparison:
    """Return the Comparison of a file, which gzip may have packed, or of a page; ResultsError where
    it does not hold one.
    """
    return decode(file.read(path), path)


def decode(raw: bytes, name: object) -> Comparison:
    """Return the Comparison of a file's content. name: of the file, for the error of `load`."""
    try:
        return _decode(_from_page(file.unpacked(raw)))
    except UNREADABLE as error:
        reason = printable(str(error))
        raise ResultsError(f"{name} is not a crossbench results file: {reason}") from None


def _from_page(raw: bytes) -> bytes:
    """Return the results that a page holds, or the content itself where it is no page."""
    if not raw.startswith(b"<!DOCTYPE html>"):
        return raw
    found = PAGE_RESULTS.findall(raw)
    if len(found) != 1:
        raise ValueError(f"the page holds {len(found)} runs: name the results file of one")
    return found[0]


def _decode(raw: bytes) -> Comparison:
    """Return the comparison; raise one of UNREADABLE where the content is none."""
    schema = msgspec.json.decode(raw, type=_Schema).schema
    if schema == SCHEMA - 1:
        raw = earlier.with_present_names(raw)
    elif schema != SCHEMA:
        raise msgspec.ValidationError(
            f"it has schema {schema}, this crossbench reads {SCHEMA - 1} and {SCHEMA}: use its own "
            "version"
        )
    comparison = msgspec.json.decode(raw, type=Comparison)
    comparison.schema = SCHEMA
    check(comparison)
    earlier.describe_anew(comparison)
    return comparison


class _Schema(msgspec.Struct):
    schema: int
