"""A Comparison: everything that was measured, the figures drawn from it, and its file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from ..errors import ResultsError
from .records import CellResult, Data, Epoch, Machine, Settings
from .statistics import Estimate, estimate, paired_ratio

SCHEMA = 1


@dataclass
class Comparison:
    """The result of `crossbench.run`; `crossbench.load` gives the same back from a file."""

    schema: int
    crossbench: str
    created: str
    """UTC, ISO 8601."""
    model: dict[str, Any]
    """Model.description()."""
    data: Data
    machine: Machine
    settings: Settings
    results: list[CellResult]

    def __repr__(self) -> str:
        cells = ", ".join(f"{r.name}: {r.status}" for r in self.results)
        return f"<Comparison of {self.model['name']} ({cells})>"

    def first_epoch(self, result: CellResult) -> Epoch | None:
        """The epoch that held compilation."""
        return result.epochs[0] if result.epochs else None

    def steady(self, result: CellResult, figure: str = "wall_seconds") -> Estimate | None:
        """Seconds of a steady epoch over the rounds; None where no steady round was finished."""
        by_round = self._by_round(result, figure)
        return estimate(list(by_round.values())) if by_round else None

    def runtime_figures(self, result: CellResult) -> dict[str, tuple[float, float | None]]:
        """What the framework's runtime told: of the first epoch, and the steady ones' median."""
        first = self.first_epoch(result)
        steady = [epoch.figures for epoch in result.epochs if epoch.round > 0]
        return {
            name: (value, median(f[name] for f in steady) if steady else None)
            for name, value in (first.figures if first else {}).items()
        }

    def images_per_second(self, result: CellResult) -> float | None:
        steady = self.steady(result)
        return self.data.batches * self.data.batch_size / steady.median if steady else None

    def ranked(self, device: str) -> list[CellResult]:
        """The cells of a device that ran to the end and did the same work, the fastest first."""
        speed = {
            i: steady.median
            for i, r in enumerate(self.results)
            if r.cell.device == device and _counts(r) and (steady := self.steady(r))
        }
        return [self.results[i] for i in sorted(speed, key=speed.__getitem__)]

    def ratio_to_fastest(self, result: CellResult) -> Estimate | None:
        """Times as long as the device's fastest, paired by round; None where it is not ranked."""
        ranked = self.ranked(result.cell.device)
        return self._ratio(result, ranked[0]) if any(r is result for r in ranked) else None

    def gpu_speedup(self, result: CellResult) -> Estimate | None:
        """How many times faster a GPU cell is than its framework's CPU cell, paired by round."""
        if result.cell.device != "gpu" or not _counts(result):
            return None
        framework = result.cell.framework
        cpu = [r for r in self.ranked("cpu") if r.cell.framework == framework]
        return self._ratio(cpu[0], result) if cpu else None

    @property
    def complete(self) -> bool:
        """Whether all that was named ran, and nothing failed or disagreed."""
        return all(
            _counts(r) or (r.status == "unavailable" and not r.cell.named) for r in self.results
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a new file; ResultsError where it exists already or cannot be written."""
        claim(path)
        Path(path).write_bytes(self.encode())

    def encode(self) -> bytes:
        """The file's content: JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    def _by_round(self, result: CellResult, figure: str) -> dict[int, float]:
        """The mean epoch of each steady round."""
        rounds: dict[int, list[float]] = {}
        for epoch in result.epochs:
            if epoch.round > 0:
                rounds.setdefault(epoch.round, []).append(getattr(epoch, figure))
        return {number: fmean(values) for number, values in rounds.items()}

    def _ratio(self, numerator: CellResult, denominator: CellResult) -> Estimate:
        return paired_ratio(
            self._by_round(numerator, "wall_seconds"), self._by_round(denominator, "wall_seconds")
        )


def _counts(result: CellResult) -> bool:
    return result.status == "ran" and result.parity is not None and result.parity.agrees


def claim(path: str | os.PathLike[str]) -> None:
    """Make the empty file, so that nothing is overwritten; ResultsError where that fails."""
    try:
        open(path, "xb").close()
    except FileExistsError:
        raise ResultsError(f"{path} exists already: choose another name") from None
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {error.strerror}") from None


def load(path: str | os.PathLike[str]) -> Comparison:
    """The Comparison of a file; ResultsError, in a line, where it is none."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from None
    try:
        schema = msgspec.json.decode(raw, type=_Schema).schema
        if schema != SCHEMA:
            raise ResultsError(
                f"{path} has schema {schema}, this crossbench reads {SCHEMA}: use its own version"
            )
        return msgspec.json.decode(raw, type=Comparison)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path} is not a crossbench results file: {error}") from None


class _Schema(msgspec.Struct):
    schema: int
