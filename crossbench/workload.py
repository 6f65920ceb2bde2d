"""The two protocols of a framework: an Adapter makes Workloads, a Workload is one model there.

An adapter measures nothing: the engine's one clock times `train_epoch` from outside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Protocol

import numpy as np

from .models.model import Model, Weights

DEVICES = ("cpu", "gpu")


def versions(*packages: str) -> dict[str, str]:
    """The versions of those of the Python packages that are installed; imports none of them."""
    found = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


@dataclass(frozen=True)
class Batches:
    """An epoch in its fixed order.

    inputs: (steps, batch, *input_shape), C-contiguous, of the workload's dtype.
    labels: (steps, batch), int64, from 0.
    """

    inputs: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Job:
    """One model on one device, in one precision ("float32" or "float64")."""

    model: Model
    device: str
    threads: int
    dtype: str


class Workload(Protocol):
    """A model built in one framework, with its optimizer and its data."""

    def load_weights(self, weights: Weights) -> None:
        """Take canonical weights; the optimizer's state starts anew."""

    def place(self, batches: Batches) -> None:
        """Bring the epoch's data to the device, in the framework's own layout (not timed)."""

    def train_epoch(self) -> np.ndarray:
        """Train on every placed batch, once, in order: the loss of each step, (steps,) float64.

        Returns when the device has nothing left to do. This alone is timed.
        """

    def loss_and_gradients(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, Weights]:
        """The loss of one batch and its gradients, canonical; no weight changes."""

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """The logits of (n, *input_shape): (n, classes)."""

    def weights(self) -> Weights:
        """The weights as they are now, canonical."""

    def peak_memory(self) -> int | None:
        """The most bytes in use on the GPU, the allocator's own figure; None on the CPU."""

    def threads(self) -> int | None:
        """The CPU threads that the framework itself says it uses; None where it cannot tell."""

    def allocated(self) -> int | None:
        """The bytes that an epoch allocates on the device, all in all; None where the framework
        cannot tell. It may train one under a tracer, so it is never timed.
        """

    def matrix_product(self, size: int) -> Callable[[], None]:
        """A call that multiplies two float32 matrices (size, size), on as many threads as the job
        has, and returns when the device has nothing left to do.
        """

    def copy(self, size: int) -> Callable[[], None]:
        """A call that copies `size` bytes on the device, and returns in the same way."""

    def details(self) -> dict[str, str]:
        """What a reader needs to judge the figures: versions, BLAS, device name."""

    def epoch_figures(self) -> dict[str, float]:
        """What only the framework's runtime can tell of the last epoch, by name with its unit."""


class Unavailable(Exception):
    """Raised by an adapter that finds out that its framework cannot be had; str() is the reason."""


class Adapter(ABC):
    """A framework. Cheap to import: only a worker process, in `build`, imports the framework."""

    title: str
    """The framework's name as its users write it: "PyTorch"."""

    @abstractmethod
    def available(self, device: str) -> str | None:
        """None where `build` should work on that device, else the reason and what to do."""

    @abstractmethod
    def installed(self) -> dict[str, str]:
        """What there is of the framework, by name: its packages' versions, and the like."""

    @abstractmethod
    def build(self, job: Job) -> Workload:
        """The workload, without weights and data yet, in a worker process."""

    def environment(self, device: str, threads: int) -> dict[str, str]:
        """Environment variables for the worker process, set where the user has not."""
        return {}

    def to_install(self, device: str) -> str | None:
        """In a worker: what `install` would fetch, from where and how often; None for nothing."""
        return None

    def install(self, device: str) -> None:
        """In a worker: fetch it, printing what goes on; Unavailable where it cannot be had."""
        raise NotImplementedError
