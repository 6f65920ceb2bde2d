"""Check what an adapter returns, in the worker, before it is used.

Whatever passes can be written to a results file, read back, and shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..inputs.checks import shown
from ..inputs.printable import printable
from ..models import Model, Weights
from ..workload import Batch, Batches, DeviceArrays, Workload
from .untimed import CallMeter

MAX_INT = 2**63 - 1
MAX_CHARACTERS = 500
"""Characters of a name or a value in details() and epoch_figures()."""
MAX_SOURCE_CHARACTERS = 200_000
"""Characters of `source_code` that are kept."""
MAX_ENTRIES = 100
"""Entries of details() and of epoch_figures()."""


class AdapterError(Exception):
    """An adapter returned what the protocol does not allow; str() says what, in a line."""


class CheckedWorkload:
    """Wrap a Workload and raise AdapterError where it returns what the protocol does not allow.

    The checks of an epoch are inside the measured time: they take microseconds. The calls that are
    in no epoch's seconds are measured here.
    """

    def __init__(self, workload: Workload, model: Model) -> None:
        self.workload, self.output_shape = workload, model.output_shape
        self.steps = self.batch_size = 0
        self.figures: dict[str, float] | None = None
        self.meter = CallMeter()
        self.source_code = _source_code(getattr(workload, "source_code", ""))

    def load_weights(self, weights: Weights) -> None:
        self.meter.moves("load_weights", list(weights.values()))
        with self.meter.measured("load_weights"):
            self.workload.load_weights(weights)

    def place(self, batches: Batches) -> None:
        self.steps, self.batch_size = len(batches), batches.batch_size
        if not batches.streamed:
            first = next(iter(batches))
            self.meter.moves("place", [first.inputs, first.labels])
        with self.meter.measured("place", self.steps):
            self.workload.place(batches)

    def train_epoch(self) -> np.ndarray:
        losses = self.workload.train_epoch()
        return _array("train_epoch()", losses, (self.steps,), "one loss for each batch")

    def backward_epoch(self) -> Callable[[], Weights]:
        fetch = self.workload.backward_epoch()
        if not callable(fetch):
            raise _wrong_return("backward_epoch()", fetch, "a function that fetches gradients")
        return lambda: _weights("backward_epoch()", fetch())

    def predict_epoch(self) -> np.ndarray:
        logits = self.workload.predict_epoch()
        return self._batches("predict_epoch()", logits, self.steps)

    def predict_batches(self) -> Iterator[np.ndarray]:
        for logits in self.workload.predict_batches():
            yield self._batches("predict_batches()", logits)

    def _batches(self, call: str, logits: Any, *steps: int) -> np.ndarray:
        """Return the logits of one batch, or of so many steps, each of self.batch_size examples."""
        shape = (*steps, self.batch_size, *self.output_shape)
        return _array(call, logits, shape, "logits of each batch")

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        call, pair = "loss_and_gradients()", self.workload.loss_and_gradients(batch)
        if not isinstance(pair, tuple) or len(pair) != 2 or not _is_number(pair[0]):
            raise _wrong_return(call, pair, "a loss and gradients")
        return float(pair[0]), _weights(call, pair[1])

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        logits = self.workload.predict(inputs)
        return _array("predict()", logits, (len(inputs), *self.output_shape), "logits")

    def weights(self) -> Weights:
        with self.meter.measured("weights"):
            weights = self.workload.weights()
        found = _weights("weights()", weights)
        self.meter.moves("weights", list(found.values()))
        return found

    def peak_memory(self) -> int | None:
        return _optional_integer("peak_memory()", self.workload.peak_memory(), 1)

    def free_memory(self) -> None:
        self.workload.free_memory()

    def collect_garbage(self) -> None:
        with self.meter.measured("collect_garbage"):
            self.workload.collect_garbage()

    def threads(self) -> int | None:
        return _optional_integer("threads()", self.workload.threads(), 1)

    def allocated(self) -> int | None:
        return _optional_integer("allocated()", self.workload.allocated(), 0)

    def arrays(self) -> DeviceArrays:
        return self.workload.arrays()

    def details(self) -> dict[str, str]:
        def text(name: str, value: Any) -> str:
            if not isinstance(value, str):
                raise _wrong_return("details()", value, "a str", name)
            return printable(value, MAX_CHARACTERS)

        return _checked_dict("details()", self.workload.details(), text)

    def epoch_figures(self) -> dict[str, float]:
        def figure(name: str, value: Any) -> float:
            if not _is_number(value) or not math.isfinite(value):
                raise _wrong_return("epoch_figures()", value, "a finite number", name)
            return float(value)

        figures = _checked_dict("epoch_figures()", self.workload.epoch_figures(), figure)
        if self.figures is not None and (wrong := changed_figures(self.figures, figures)):
            raise AdapterError(wrong)
        self.figures = figures
        return figures


def _source_code(found: Any) -> str:
    if not isinstance(found, str):
        raise _wrong_return("source_code", found, "a str")
    cut = found[:MAX_SOURCE_CHARACTERS]
    return "".join(c if c == "\n" or c.isprintable() else "?" for c in cut)


def changed_figures(before: Iterable[str], now: Iterable[str]) -> str | None:
    """Return the error where epoch_figures() has other names than in an earlier epoch, or None."""
    changed = set(before) ^ set(now)
    if not changed:
        return None
    names = printable(", ".join(sorted(changed)), MAX_CHARACTERS)
    return f"epoch_figures() of the adapter returned {names!r} in some epochs and not in others"


def _array(call: str, array: Any, shape: tuple[int, ...], content: str) -> np.ndarray:
    if isinstance(array, np.ndarray) and array.shape == shape and array.dtype.kind in "fiu":
        return array
    sizes = "x".join(map(str, shape))
    raise _wrong_return(call, array, f"an array of {sizes} numbers ({content})")


def _weights(call: str, weights: Any) -> Weights:
    """Return the arrays by name; the proof of sameness checks their names and shapes."""
    if not isinstance(weights, Mapping):
        raise _wrong_return(call, weights, "arrays by name")
    for name, array in weights.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
            raise _wrong_return(call, array, "an array of numbers", name)
    return dict(weights)


def _optional_integer(call: str, value: Any, minimum: int) -> int | None:
    """Return None or the value as an int; AdapterError for anything else."""
    if value is None:
        return None
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or not minimum <= value <= MAX_INT:
        raise _wrong_return(call, value, f"None or a whole number from {minimum} to 2^63 - 1")
    return int(value)


def _checked_dict(
    call: str, entries: Any, check_value: Callable[[str, Any], Any]
) -> dict[str, Any]:
    if not isinstance(entries, Mapping) or len(entries) > MAX_ENTRIES:
        raise _wrong_return(call, entries, f"a dict of at most {MAX_ENTRIES} entries")
    for name in entries:
        if not isinstance(name, str):
            raise _wrong_return(call, name, "a str for a name")
    return {
        printable(name, MAX_CHARACTERS): check_value(name, entry) for name, entry in entries.items()
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _wrong_return(call: str, value: Any, expected: str, name: Any = None) -> AdapterError:
    """Return the error for a returned value, or for its entry of that name."""
    entry = "" if name is None else f"{_describe(name)}: "
    return AdapterError(f"{call} of the adapter returned {entry}{_describe(value)}, not {expected}")


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    return shown(value)
