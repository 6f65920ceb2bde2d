"""Check what the types of a comparison do not: that it is bounded and free of contradictions.

`check` runs before a file is written and after one is read, so every file written can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import ValidationError

from .cells import CellResult
from .epochs import Epoch
from .number_types import Count
from .records import Records

MAX_EPOCHS = 200_000
"""Epochs of a comparison: they take seconds to draw."""
MAX_ENTRIES = 10_000
"""Entries of a list or dict, such as the tensors of the proof: a model has hundreds."""
MAX_CHARACTERS = 100_000
"""Characters of a text, except for a traceback, which is not shown: a long reason has some hundred.
"""
MAX_DEPTH = 50
"""Levels of nesting in the model: branches within others have three."""
INTEGER_LIMIT = 2**63
"""Whole numbers (bytes, FLOPs, parameters) are below this."""
CLOCK_TOLERANCE = 1e-3
"""Seconds by which an epoch may begin before the previous one ended, as sums are rounded."""


class _Layer(msgspec.Struct):
    type: str
    input_shape: list[Count]
    branches: list[list[_Layer]] = []
    body: list[_Layer] = []
    shortcut: list[_Layer] = []


class _Source(msgspec.Struct):
    augmentation: dict[str, Any] | None


class _Model(msgspec.Struct):
    """Hold what is read of a model's description; it may have more fields."""

    name: str
    input_shape: list[Count]
    output_shape: list[Count]
    classes: Count | None
    parameters: Count
    trained_parameters: Count
    forward_flops: Count
    training_flops: Count
    optimizer: dict[str, str | int | float | bool | dict[str, str | int | float | bool] | None]
    data: _Source
    layers: list[_Layer]


def check(comparison: Records) -> None:
    """Raise msgspec.ValidationError where the comparison is not valid; it says what and where."""
    epochs = sum(len(result.epochs) for result in comparison.results)
    _at_most(MAX_EPOCHS, epochs, "epochs", "results")
    _check_values(comparison, "", 0)
    _check_model(comparison.model)
    for at, moment in (("created", comparison.created), *_numbered("resumed", comparison.resumed)):
        _check_moment(moment, at)
    seen: set[str] = set()
    for at, result in _numbered("results", comparison.results):
        if result.name in seen:
            raise _error(f"Two cells have the name {result.name!r}", f"{at}.cell.name")
        seen.add(result.name)
        if not comparison.batches(result):
            raise _error("Expected no more examples than the epoch has", f"{at}.cell.batch_size")
        _check_result(result, at, len(comparison.resumed))


def _check_values(value: Any, at: str, depth: int) -> None:
    """Check the size of every text, integer and list, and the nesting, except for the epochs."""
    _at_most(MAX_DEPTH, depth, "levels", at)
    if is_dataclass(value):
        for name, inner in vars(value).items():
            if name not in ("epochs", "usage", "latencies", "to_target", "loss_drift", "traceback"):
                _check_values(inner, f"{at}.{name}", depth + 1)
    elif isinstance(value, str):
        _at_most(MAX_CHARACTERS, len(value), "characters", at)
    elif isinstance(value, int) and abs(value) >= INTEGER_LIMIT:
        raise _error("Expected a number of at most 63 bits", at)
    elif isinstance(value, dict):
        _at_most(MAX_ENTRIES, len(value), "entries", at)
        for name, inner in value.items():
            _check_values(name, at, depth + 1)
            _check_values(inner, f"{at}.{name}", depth + 1)
    elif isinstance(value, list):
        _at_most(MAX_ENTRIES, len(value), "entries", at)
        for at_inner, inner in _numbered(at, value):
            _check_values(inner, at_inner, depth + 1)


def _check_model(model: dict[str, Any]) -> None:
    try:
        read = msgspec.convert(model, _Model)
    except ValidationError as error:
        message, _, at = str(error).partition(" - at `$")
        raise _error(message, f"model{at.rstrip('`')}") from None
    if not isinstance(read.optimizer.get("type"), str):
        raise _error("Expected the optimizer's type", "model.optimizer.type")


def _check_moment(moment: str, at: str) -> None:
    try:
        datetime.fromisoformat(moment)
    except ValueError:
        raise _error("Expected a time in the format of ISO 8601", at) from None


def _check_result(result: CellResult, at: str, resumptions: int) -> None:
    steady = any(epoch.epoch for epoch in result.epochs)
    if result.status == "ran" and not (result.parity and steady):
        raise _error("Expected a parity and a steady epoch of a cell that ran", at)
    if result.status in ("unavailable", "failed") and not result.reason:
        raise _error(f"Expected the reason why the cell is {result.status}", f"{at}.reason")
    _check_order(result.epochs, f"{at}.epochs", resumptions)
    rounds = {epoch.round for epoch in result.epochs}
    for name, records in (("usage", result.usage), ("latencies", result.latencies)):
        _at_most(len(result.epochs), len(records), "of them: one per epoch", f"{at}.{name}")
        for record_at, record in _numbered(f"{at}.{name}", records):
            if record.round not in rounds:
                raise _error("Expected a round of the cell", f"{record_at}.round")


def _check_order(epochs: list[Epoch], at: str, resumptions: int) -> None:
    """Check that the epochs follow one another in number and in time.

    The clock starts again when the machine restarts; then the run must have been resumed.
    """
    for (_, earlier), (epoch_at, later) in pairwise(_numbered(at, epochs)):
        if (later.round, later.epoch) <= (earlier.round, earlier.epoch):
            raise _error("Expected each epoch once and in order", epoch_at)
        if later.started + CLOCK_TOLERANCE < earlier.started + earlier.span_seconds:
            resumptions -= 1
            if resumptions < 0 or later.round == earlier.round:
                raise _error("Expected a start after the previous epoch", f"{epoch_at}.started")


def _numbered(at: str, values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Return pairs of a value's path in the file and the value."""
    return ((f"{at}[{number}]", value) for number, value in enumerate(values))


def _at_most(limit: int, number: int, things: str, at: str) -> None:
    if number > limit:
        raise _error(f"Expected at most {limit:,} {things}", at)


def _error(message: str, at: str) -> ValidationError:
    return ValidationError(f"{message} - at `$.{at.removeprefix('.')}`")
