"""What an adapter hands back, checked in the worker before anything is made of it.

Whatever passes can be written to a results file, read back, and shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..checks import shown
from ..models import Model, Weights
from ..words import clean
from ..workload import Batch, Batches, Workload

MAX_INT = 2**63 - 1
MAX_WORDS = 500
"""Characters of a name or a value in details() and epoch_figures()."""
MAX_ENTRIES = 100
LEAST_SECONDS = 1e-5
"""Of a large matrix product or copy: a thousandth of what the fastest devices take."""


class AdapterError(Exception):
    """An adapter handed back what the protocol does not allow; str() says what, in a line."""


class CheckedWorkload:
    """A Workload that raises AdapterError where another one hands back what is not allowed.

    The checks of train_epoch are within the time that is measured: they take microseconds.
    """

    def __init__(self, workload: Workload, model: Model) -> None:
        self.workload, self.output_shape = workload, model.output_shape
        self.steps = 0
        self.figures: dict[str, float] | None = None

    def load_weights(self, weights: Weights) -> None:
        self.workload.load_weights(weights)

    def place(self, batches: Batches) -> None:
        self.steps = len(batches)
        self.workload.place(batches)

    def train_epoch(self) -> np.ndarray:
        losses = self.workload.train_epoch()
        return _array("train_epoch()", losses, (self.steps,), "one loss for each batch")

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        what, pair = "loss_and_gradients()", self.workload.loss_and_gradients(batch)
        if not isinstance(pair, tuple) or len(pair) != 2 or not _is_number(pair[0]):
            raise _refused(what, pair, "a loss and gradients")
        return float(pair[0]), _weights(what, pair[1])

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        logits = self.workload.predict(inputs)
        return _array("predict()", logits, (len(inputs), *self.output_shape), "logits")

    def weights(self) -> Weights:
        return _weights("weights()", self.workload.weights())

    def peak_memory(self) -> int | None:
        return _whole("peak_memory()", self.workload.peak_memory(), 1)

    def free_memory(self) -> None:
        self.workload.free_memory()

    def threads(self) -> int | None:
        return _whole("threads()", self.workload.threads(), 1)

    def allocated(self) -> int | None:
        return _whole("allocated()", self.workload.allocated(), 0)

    def matrix_product(self, size: int) -> Callable[[], None]:
        return self.workload.matrix_product(size)

    def copy(self, size: int) -> Callable[[], None]:
        return self.workload.copy(size)

    def details(self) -> dict[str, str]:
        def word(name: str, value: Any) -> str:
            if not isinstance(value, str):
                raise _refused("details()", value, "a str", name)
            return clean(value, MAX_WORDS)

        return _entries("details()", self.workload.details(), word)

    def epoch_figures(self) -> dict[str, float]:
        def figure(name: str, value: Any) -> float:
            if not _is_number(value) or not math.isfinite(value):
                raise _refused("epoch_figures()", value, "a finite number", name)
            return float(value)

        figures = _entries("epoch_figures()", self.workload.epoch_figures(), figure)
        if self.figures is not None and (wrong := other_names(self.figures, figures)):
            raise AdapterError(wrong)
        self.figures = figures
        return figures


def other_names(before: Iterable[str], now: Iterable[str]) -> str | None:
    """Return what is wrong where an epoch's figures are not those of an epoch before it."""
    odd = set(before) ^ set(now)
    if not odd:
        return None
    names = clean(", ".join(sorted(odd)), MAX_WORDS)
    return f"epoch_figures() of the adapter gave {names!r} in some epochs and not in others"


def check_seconds(what: str, seconds: float) -> float:
    """Return the seconds of a large product or copy; AdapterError where it did nothing."""
    if seconds < LEAST_SECONDS:
        raise AdapterError(f"{what} of the adapter took {seconds:.1e} s: it did not do the work")
    return seconds


def _array(what: str, array: Any, shape: tuple[int, ...], content: str) -> np.ndarray:
    if isinstance(array, np.ndarray) and array.shape == shape and array.dtype.kind in "fiu":
        return array
    sizes = "x".join(map(str, shape))
    raise _refused(what, array, f"an array of {sizes} numbers ({content})")


def _weights(what: str, weights: Any) -> Weights:
    """Return the arrays by name; the proof checks which names and shapes they have."""
    if not isinstance(weights, Mapping):
        raise _refused(what, weights, "arrays by name")
    for name, array in weights.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
            raise _refused(what, array, "an array of numbers", name)
    return dict(weights)


def _whole(what: str, value: Any, least: int) -> int | None:
    if value is None:
        return None
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value <= MAX_INT:
        raise _refused(what, value, f"None or a whole number from {least} to 2^63 - 1")
    return int(value)


def _entries(what: str, entries: Any, value: Callable[[str, Any], Any]) -> dict[str, Any]:
    if not isinstance(entries, Mapping) or len(entries) > MAX_ENTRIES:
        raise _refused(what, entries, f"a dict of at most {MAX_ENTRIES} entries")
    for name in entries:
        if not isinstance(name, str):
            raise _refused(what, name, "a str for a name")
    return {clean(name, MAX_WORDS): value(name, entry) for name, entry in entries.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _refused(what: str, value: Any, wanted: str, name: Any = None) -> AdapterError:
    """Return the error for a value, or for the entry of that name."""
    entry = "" if name is None else f"{_shown(name)}: "
    return AdapterError(f"{what} of the adapter gave {entry}{_shown(value)}, not {wanted}")


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    return shown(value)
