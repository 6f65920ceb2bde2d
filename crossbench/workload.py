"""The two protocols of a framework: an Adapter makes Workloads, a Workload is one model there.

An adapter measures nothing: the engine's one clock times `train_epoch` from outside.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol

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


DISTRIBUTION = "crossbench-frameworks"
"""The name under which pip knows this package; `crossbench` on PyPI is another project."""


def missing(extra: str, *packages: str) -> str | None:
    """Return which of the Python packages are not installed, and the command that installs them.

    extra: the extra of this package that holds them, for whoever installed it from a clone. None
    where all are installed.
    """
    absent = [package for package in packages if package not in versions(package)]
    if not absent:
        return None
    command = f"-e '.[{extra}]'" if _is_clone() else " ".join(absent)
    verb = "is" if len(absent) == 1 else "are"
    return f"{', '.join(absent)} {verb} not installed: pip install {command}"


def _is_clone() -> bool:
    """Return whether pip installed this package from a directory, to be edited there (PEP 610)."""
    try:
        origin = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        return bool(json.loads(origin or "{}").get("dir_info", {}).get("editable"))
    except (metadata.PackageNotFoundError, ValueError):
        return False


@dataclass(frozen=True)
class Batch:
    """The examples of one step.

    inputs: (batch, *input_shape), C-contiguous: of the workload's dtype, or, where the model has a
        vocabulary, int32 numbers from 0.
    labels: (batch,), int64, from 0.
    kept: for each dropout by its name ("dropout1") which values it keeps in training, bool,
        (batch, *shape); None, except in the proof of sameness: the framework draws them itself.
    """

    inputs: np.ndarray
    labels: np.ndarray
    kept: Mapping[str, np.ndarray] | None = None


class Batches(Protocol):
    """An epoch in its fixed order; it can be gone through again and again."""

    @property
    def streamed(self) -> bool:
        """Whether each batch is made when its turn comes, so that none is on the device before."""

    def __iter__(self) -> Iterator[Batch]: ...

    def __len__(self) -> int:
        """How many steps."""


class Streamed:
    """Batches that are moved to the device each when its turn comes."""

    def __init__(self, batches: Batches, move: Callable[[Batch], Any]) -> None:
        self.batches, self.move = batches, move

    def __iter__(self) -> Iterator[Any]:
        return map(self.move, self.batches)


def placed(batches: Batches, move: Callable[[Batch], Any]) -> Iterable[Any]:
    """What `move` makes of each batch: all of them now, or, streamed, each when its turn comes.
    It can be gone through again and again.
    """
    return Streamed(batches, move) if batches.streamed else [move(batch) for batch in batches]


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
        """Take canonical weights, running statistics among them; the optimizer's state and the
        dropouts' draws start anew.
        """

    def place(self, batches: Batches) -> None:
        """Bring the epoch's data to the device, in the framework's own layout (not timed); where
        the batches are streamed, keep them, for each to be brought when its turn comes.
        """

    def train_epoch(self) -> np.ndarray:
        """Train on every placed batch, once, in order: the loss of each step, (steps,) float64.

        Returns when the device has nothing left to do. This alone is timed.
        """

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        """The loss of one batch in training, and the gradients of the parameters that are trained,
        canonical; nothing changes.
        """

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """The logits of (n, *input_shape) in prediction, any n: (n, *output_shape); nothing
        changes: dropouts do nothing, batch norms take their running statistics.
        """

    def weights(self) -> Weights:
        """The parameters as they are now, canonical, the running statistics among them."""

    def peak_memory(self) -> int | None:
        """The most bytes in use on the GPU, the allocator's own figure; None on the CPU."""

    def free_memory(self) -> None:
        """Give unused memory of the device back, as far as the framework can: workers share a GPU.
        The call is not timed, and neither is the training after it that allocates again.
        """

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

    def required_environment(self, device: str) -> dict[str, str]:
        """Return the environment variables that the figures depend on; they override the user's."""
        return {}

    def to_install(self, device: str) -> str | None:
        """In a worker: what `install` would fetch, from where and how often; None for nothing."""
        return None

    def install(self, device: str) -> None:
        """In a worker: fetch it, printing what goes on; Unavailable where it cannot be had."""
        raise NotImplementedError
