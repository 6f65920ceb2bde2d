"""Defines what a framework must implement: an Adapter, which builds Workloads (one model each).

An adapter measures nothing: the engine times `train_epoch` and `predict_epoch` from outside, with
one clock for all frameworks.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .data import Dataset
from .inputs.names import BFLOAT16, DEVICES, FLOAT32, IDIOMATIC, MALLOC, Compute
from .models.model import Model, Weights
from .source.training_programs import Training


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of the Python packages that are installed, without importing them."""
    found = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


DISTRIBUTION = "crossbench-frameworks"
"""The name under which pip knows this package; `crossbench` on PyPI is another project."""


def missing(extra: str, *packages: str) -> str | None:
    """Return which packages are not installed and the pip command for them; None if all are.

    packages: their names on PyPI. extra: the extra of crossbench that lists them; the command
        names it where crossbench itself was installed from a clone.
    """
    absent = [package for package in packages if package not in versions(package)]
    if not absent:
        return None
    command = f"-e '.[{extra}]'" if _is_clone() else " ".join(absent)
    verb = "is" if len(absent) == 1 else "are"
    return f"{', '.join(absent)} {verb} not installed: pip install {command}"


def _is_clone() -> bool:
    """Return whether pip installed crossbench as editable, from a directory (PEP 610)."""
    try:
        origin = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        return bool(json.loads(origin or "{}").get("dir_info", {}).get("editable"))
    except (metadata.PackageNotFoundError, ValueError):
        return False


@dataclass(frozen=True)
class Batch:
    """Holds the examples of one training step, on the host.

    inputs: (batch, *input_shape), C-contiguous, of the job's dtype; where the model has a
        vocabulary, int32 token numbers from 0.
    labels: (batch,), int64, classes from 0; where the model has no classes, its targets
        (batch, *output_shape), C-contiguous, of the job's dtype.
    masks: dropout masks by layer name ("dropout1"), bool, (batch, *shape), True where the value is
        kept. None in timed training: the framework draws its own. Given where losses or weights
        are compared with the reference.
    """

    inputs: np.ndarray
    labels: np.ndarray
    masks: Mapping[str, np.ndarray] | None = None


class Batches(Protocol):
    """Yields the batches of one epoch, in a fixed order; may be iterated any number of times."""

    @property
    def streamed(self) -> bool:
        """Return whether each batch must go to the device just before its step, not in advance."""

    @property
    def batch_size(self) -> int:
        """Return the number of examples of each batch."""

    def __iter__(self) -> Iterator[Batch]: ...

    def __len__(self) -> int:
        """Return the number of steps in the epoch."""


class StreamedToDevice:
    """Moves each batch to the device when the training loop asks for it."""

    def __init__(self, batches: Batches, to_device: Callable[[Batch], Any]) -> None:
        self.batches, self.to_device = batches, to_device

    def __iter__(self) -> Iterator[Any]:
        return map(self.to_device, self.batches)


def batches_on_device(batches: Batches, to_device: Callable[[Batch], Any]) -> Iterable[Any]:
    """Return the epoch's batches on the device, for an adapter's `place` to keep.

    to_device: copies one batch to the device, in whatever form the training step takes. It is
        called for all batches now, or, if they are streamed, for each one during iteration.
    The result may be iterated any number of times.
    """
    if batches.streamed:
        return StreamedToDevice(batches, to_device)
    return [to_device(batch) for batch in batches]


@dataclass(frozen=True)
class Variant:
    """Describes one way to train in a framework.

    summary: what is done, in a line. devices: those that it is for. environment: variables of the
    worker process, which override the user's.
    """

    summary: str
    devices: tuple[str, ...] = DEVICES
    environment: Mapping[str, str] = field(default_factory=dict)


KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
"""Environment in which glibc keeps the memory that a program frees. By default it gives each large
array back to the kernel, which clears the pages of the next one; M_MMAP_MAX and M_TRIM_THRESHOLD in
mallopt(3)."""
MALLOC_VARIANT = Variant(
    "the idiomatic code; the C library keeps the memory that it frees",
    ("cpu",),
    KEEP_FREED_MEMORY | {"MALLOC_ARENA_MAX": "1"},
)
"""Variant in that environment. Threads other than the first have arenas of their own, whose heaps
glibc gives back all the same where they are empty (delete_heap in arena.c): so there is one arena.
Threads wait for one another there, so a variant that trains in several of them keeps its arenas."""


@dataclass(frozen=True)
class Job:
    """Says what `Adapter.build` must build: a model, on a device, in a precision and a variant."""

    model: Model
    device: str
    """"cpu" or "gpu"; a worker process sees at most one GPU."""
    threads: int
    """CPU threads that the framework may use."""
    dtype: str
    """"float32" or "float64", of inputs, weights and losses."""
    variant: str = IDIOMATIC
    """One of the adapter's `variants`."""
    compute: Compute = FLOAT32
    """What a float32 job computes its matrix multiplications and convolutions in:
    "float32", "tf32" or "bfloat16"."""

    @property
    def is_mixed(self) -> bool:
        """Return whether activations are bfloat16, beside float32 weights."""
        return self.compute == BFLOAT16 and self.dtype == FLOAT32


class DeviceArrays(Protocol):
    """Multiplies and copies arrays on the device, without a model: the limits of the roofline.

    The engine times `multiply` and `copy`, each time with other arrays, and checks the results.
    """

    def put(self, array: np.ndarray) -> Any:
        """Return the float32 array in memory of its own on the device, and wait for it."""

    def operand(self, array: np.ndarray) -> Any:
        """Return the float32 matrix for `multiply`, of the type in which the job multiplies.

        As `put`, unless the job computes in bfloat16.
        """
        return self.put(array)

    def fetch(self, array: Any, step: int = 1) -> np.ndarray:
        """Return every step-th row of an array, on the host, in float32."""

    def address(self, array: Any) -> int | None:
        """Return the address of the array's memory; None if the framework does not tell."""

    def multiply(self, a: Any, b: Any, into: Any) -> Any:
        """Return the product of two matrices (n, n), and wait for the device.

        into: a matrix that is not needed any more: the product may be written there.
        """

    def copy(self, source: Any, into: Any) -> Any:
        """Return a copy of an array (n,) in other memory, and wait for the device.

        into: an array that is not needed any more: the copy may be written there.
        """


class Workload(Protocol):
    """Trains and runs one model in one framework; holds its weights, optimizer and batches.

    Weights and gradients cross this interface in canonical form: NumPy arrays by parameter name
    ("conv1.weight"), in torch's axis order, of the job's dtype. "Wait for the device" means:
    return only when all work that was started on it has finished. A subclass inherits what a
    framework without a GPU and without counters answers.
    """

    source_code: str = ""
    """What the adapter wrote for the job and runs, as the results file keeps it; nothing where it
    writes none, or where a variant takes other steps."""

    def load_weights(self, weights: Weights) -> None:
        """Replace all parameters and running statistics by the canonical `weights`.

        Also resets the optimizer's state and the seed of the dropout masks.
        """

    def place(self, batches: Batches) -> None:
        """Bring the epoch's batches to the device, in the framework's own layout; not timed.

        `train_epoch` then trains on them, `predict_epoch` predicts them. If they are streamed, keep
        the iterable instead, and bring each batch to the device in its step. `batches_on_device`
        does both.
        """

    def train_epoch(self) -> np.ndarray:
        """Train once on every batch that `place` took, in order, and wait for the device.

        Returns the loss of each step, (steps,) float64. The engine times this call.
        """

    def backward_epoch(self) -> Callable[[], Weights]:
        """Compute the gradients of every batch that `place` took, and wait for the device.

        Does what `train_epoch` does but for the optimizer. Returns a function of no arguments,
        which fetches the last batch's gradients, those of `loss_and_gradients`. The engine times
        this call, to know what a part of the model takes, and proves a lower precision by it.
        """
        reason = (
            "the adapter has no backward_epoch()"  # raised at once, it would be abstract to mypy
        )
        raise NotImplementedError(reason)

    def predict_epoch(self) -> np.ndarray:
        """Return the logits of every batch that `place` took, in order, in inference mode.

        (steps, batch, *output_shape), on the host. The engine times this call.
        """
        return np.stack(list(self.predict_batches()))

    def predict_batches(self) -> Iterator[np.ndarray]:
        """Yield the same logits, (batch, *output_shape) on the host, one batch after the other.

        A batch is begun when its logits are asked for. The engine times how long each takes.
        """

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        """Return the loss and the canonical gradients of one batch, in training mode.

        Gradients are those of the trained parameters. No weights and no state change.
        """

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return the logits (n, *output_shape) of inputs (n, *input_shape), in inference mode.

        Any n. Dropouts do nothing and batch norms use their running statistics; no state changes.
        """

    def weights(self) -> Weights:
        """Return the current parameters and running statistics, canonical, on the host."""

    def peak_memory(self) -> int | None:
        """Return the GPU allocator's own peak, in bytes; None on the CPU."""
        return None

    def free_memory(self) -> None:
        """Give unused device memory back, as far as the framework can: workers share a GPU.

        Not timed, nor is the training after it that allocates the memory again.
        """
        return

    def collect_garbage(self) -> None:
        """Collect the garbage of earlier calls, if the framework has a collector of its own.

        The engine calls it, untimed, before each call that it times for a part of a step: a
        collection within the call would count for that part alone.
        """
        return

    def threads(self) -> int | None:
        """Return how many CPU threads the framework says it uses; None if it cannot tell."""
        return None

    def allocated(self) -> int | None:
        """Return the sum of all bytes that one epoch allocates on the device; None if unknown.

        May train an epoch under a tracer, so it is never timed.
        """
        return None

    def arrays(self) -> DeviceArrays:
        """Return the operations on arrays that the peak is measured with, on the job's threads."""

    def details(self) -> dict[str, str]:
        """Return what a reader needs to judge the figures: versions, BLAS, device name.

        After an epoch also what a variant chose while it ran, such as the size of a piece.
        """

    def epoch_figures(self) -> dict[str, float]:
        """Return what only the framework's runtime knows of the last epoch.

        By name with its unit ("GC s"); the same names after every epoch.
        """
        return {}


class Programs(Protocol):
    """Writes the programs of an adapter, for `script`: a module can be that.

    A program needs the framework and NumPy alone, and is written as the framework's users do. A
    function raises NotImplementedError, with the reason in a line, where there is no program. Of
    layers there are programs where it has a function `part_program` too, which returns the source
    code that times a PartTraining, as the idiomatic variant computes it.
    """

    def training_program(self, training: Training) -> str:
        """Return a program that trains a model, as a variant's row does.

        From the weights that `initial_arrays` returns, its losses are the row's.
        """

    def initial_arrays(self, training: Training, weights: Weights) -> Mapping[str, np.ndarray]:
        """Return canonical weights by the names, and with the axes, of the program's model."""

    def example_arrays(self, training: Training, dataset: Dataset) -> Mapping[str, np.ndarray]:
        """Return the arrays that the program reads examples from, none if it needs no such file."""


class Unavailable(Exception):
    """Raised by an adapter whose framework turns out not to be available; str() is the reason."""


class Adapter(ABC):
    """Connects one framework to crossbench.

    Importing and calling it is cheap: only `build`, in a worker process, imports the framework.
    """

    title: str
    """The framework's name as its users write it: "PyTorch"."""

    programs: Programs | None = None
    """Writes the adapter's programs; None where it writes none."""

    program_suffix = ".py"
    """The end of the name of a file with a program."""

    arrays_suffix = ".npz"
    """The end of the name of a file with the weights or examples of a program: NumPy's, or .bin for
    the values alone."""

    program_computes: tuple[Compute, ...] = (FLOAT32,)
    """The precisions in which the programs of whole models compute, see `Job.compute`."""

    speed_variables: tuple[str, ...] = ()
    """How the names of environment variables begin that change the framework's speed: a run records
    those that the user has set."""

    variants: Mapping[str, Variant] = {IDIOMATIC: Variant("as the framework's tutorials write it")}
    """The ways to train that `build` knows, by name; IDIOMATIC is the first."""

    def of_variant(self, name: str) -> Adapter:
        """Return the adapter of one of the `variants`.

        It is another one where a variant needs other packages, another environment or a title of
        its own.
        """
        return self

    @abstractmethod
    def available(self, device: str) -> str | None:
        """Return None if `build` should work on "cpu" or "gpu", else why not and what to do."""

    def left_out(self) -> str | None:
        """Return why a run that names no frameworks leaves this one out; None if it takes part.

        One that `install` would download takes part only when it is there: nobody waits for what
        they did not ask for.
        """
        return None

    def lacks(self, compute: str, device: str) -> str | None:
        """Return None if `build` can compute in "tf32" or "bfloat16" on the device; else why not.

        bfloat16 is the mixed precision of the framework's documentation, with float32 weights and a
        float32 optimizer.
        """
        return f"the adapter of {self.title} computes in float32 alone"

    @abstractmethod
    def installed(self) -> dict[str, str]:
        """Return what is installed of the framework: versions by package name, and the like."""

    def describes(self, found: Any) -> bool:
        """Return whether `describe` takes an object: a model in the framework's own words."""
        return False

    def describe(self, found: Any, input_shape: tuple[int, ...]) -> Any:
        """Return the Model that a model in the framework's own words is, with its weights.

        input_shape: of one example. Raises SpecError for what has no description.
        """
        raise NotImplementedError

    @abstractmethod
    def build(self, job: Job) -> Workload:
        """Return the job's workload, still without weights and batches. Called in a worker."""

    def environment(self, device: str, threads: int) -> dict[str, str]:
        """Return environment variables for the worker process; the user's own values win."""
        return {}

    def required_environment(self, device: str) -> dict[str, str]:
        """Return environment variables that the figures depend on; they override the user's."""
        return {}

    def proof_environment(self, device: str, cache: Path) -> dict[str, str]:
        """Return environment variables for a worker in which nothing is timed, such as a proof's.

        They override all others. cache: a directory of this kind of processor, where what was
        compiled may be kept for later runs; it may not exist yet.
        """
        return {}

    def to_install(self, device: str) -> str | None:
        """Return what `install` would download, from where and how often; None for nothing.

        Called in a worker process.
        """
        return None

    def install(self, device: str) -> None:
        """Download and install what is missing, and print the progress. Called in a worker.

        Raises Unavailable where that fails.
        """
        raise NotImplementedError


class VariantModules(Adapter):
    """Mixed into an adapter, builds each of its variants from a module of the adapter's package.

    The module has the variant's name and holds a class WORKLOAD, which takes a Job; the idiomatic
    variant, and the one in another environment, are what the adapter itself builds.
    """

    def build(self, job: Job) -> Any:
        if job.variant in (IDIOMATIC, MALLOC):
            return super().build(job)  # type: ignore[safe-super]
        return import_module(f".{job.variant}", type(self).__module__).WORKLOAD(job)
